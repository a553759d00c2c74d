"""The named methods: drafter x corrector x growth. The one place that knows how names are made.

`<corrector>` is a chain and `<corrector>tree` a tree, for every corrector there is; a few have names of their own.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from speccorrect.described import described_correctors

Growth = Literal["plain", "chain", "tree"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How a round drafts. Sizes are defaults that options may override."""

    name: str
    corrector: str | None  # None drafts nothing
    growth: Growth
    title: str
    paper: str
    summary: str
    candidates: int | None = None  # most probable tokens per slot that the head may propose; None is all
    tree_budget: int = 32  # drafted nodes, the anchor not counted
    lanes: int | None = None  # open paths per depth at most; None opens as many as there are nodes
    branches: int | None = None  # children per node; None is all candidates
    depth_bonus: float = 0.0


PLAIN = Method(
    name="ar",
    corrector=None,
    growth="plain",
    title="plain decoding",
    paper="-",
    summary="one token per pass of the target; the baseline of every comparison",
)

_OWN_NAMES = {("none", "chain"): "dflash", ("none", "tree"): "ddtree"}
_TREE_PAPERS = {"none": "DDTree, arXiv 2604.12989", "domino": "DominoTree, arXiv 2607.08642"}


@cache
def methods() -> dict[str, Method]:
    """All methods by name; plain decoding first, then a chain and a tree per corrector, then the variants."""
    table = {PLAIN.name: PLAIN}
    for corrector, spec in sorted(
        described_correctors().items(), key=lambda item: (item[0] != "none", item[0])
    ):
        chain = Method(
            name=_OWN_NAMES.get((corrector, "chain"), corrector),
            corrector=corrector,
            growth="chain",
            title=spec.title,
            paper=spec.paper,
            summary=f"chain: {spec.summary}",
        )
        tree = replace(
            chain,
            name=_OWN_NAMES.get((corrector, "tree"), f"{corrector}tree"),
            growth="tree",
            paper=_TREE_PAPERS.get(corrector, spec.paper),
            summary=f"tree: {spec.summary}",
            candidates=64,
            branches=None if corrector == "none" else 8,
            # a head pays for every open path; 16 keep the acceptance of 64 on the embedded family
            lanes=None if corrector == "none" else 16,
        )
        table[chain.name], table[tree.name] = chain, tree
    if "dominotree" in table:
        beam = replace(
            table["dominotree"],
            name="dartree",
            title="DARTree",
            paper="arXiv 2608.13524",
            summary="tree: a beam of 12 paths per depth, pruned to 64 nodes",
            tree_budget=64,
            lanes=12,
            branches=None,
            depth_bonus=-0.2,
        )
        table[beam.name] = beam
    return table


def method(name: str) -> Method:
    """The method of that name; an unknown one is a ValueError that lists them all."""
    known = methods()
    if name not in known:
        raise ValueError(f"method: got {name!r}, expected one of {', '.join(known)}")
    return known[name]
