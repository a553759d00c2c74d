"""Length policies: how many rows of a proposal are worth verifying. The protocol, and the policies that exist.

A policy reads probabilities and prices. No drafted token is among its arguments, so none can decide whether it is tested:
under *reject* that would bias the text. One question is left, which `sequential` answers: a policy that compares all
slots at once may be given only what was known before the first token was drawn.

Letters: B batch, M drafted nodes in descending order of their probability, K depths, T rows of a pass over all requests.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol

import torch
from torch import Tensor

from speccorrect import policies


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What is known of a proposal before it is verified."""

    reach_BM: Tensor  # fp32 probability that the target takes the path to this node; never rises with m
    depth_BM: Tensor  # int64, from 1; 0 for dead nodes, whose reach is 0
    chain_BK: Tensor  # fp32 probability of the best token at every depth, if those before it were taken
    length_B: Tensor | None = None  # share of the block that AdaFlash's head finds worth verifying

    @property
    def nodes(self) -> int:
        """M, the drafted nodes: a verification has one row more."""
        return self.reach_BM.shape[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds of a whole round by what it verifies."""

    seconds_T: Tensor  # fp32; element t - 1 is a round of t rows in all
    even: bool = True  # all requests of a pass verify equally many rows, as in a rectangular batch


class LengthPolicy(Protocol):
    """How many rows to verify. Pure: tensors in, tensors out, nothing read on the host."""

    sequential: bool
    """True if whether a slot is verified depends on the probabilities of that slot and those before it alone."""

    priced: bool
    """True if it reads the costs."""

    @property
    def evidence(self) -> Literal["scores", "confidence", "corrected"]:
        """What it takes probabilities from.

        The drafter's scores; a head that foretells acceptance, where there is one; or the scores, corrected by what the
        request has seen so far.
        """

    def rows(self, outlook: Outlook, costs: Costs) -> Tensor:
        """Rows to verify of every request, int64 `[B]` from 1 (the anchor alone) to M + 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """What the rest of the world needs to know of a policy."""

    name: str  # the file's stem
    title: str
    paper: str
    summary: str  # one line for people who choose one
    value: str | None  # what the one number means that a user may set; None where there is none
    new: Callable[[float | None], LengthPolicy]  # None takes the default; a bad number is a ValueError


@cache
def policy_specs() -> dict[str, PolicySpec]:
    """All policies by name, sorted."""
    specs: dict[str, PolicySpec] = {}
    for entry in sorted(pkgutil.iter_modules(policies.__path__), key=lambda entry: entry.name):
        spec = getattr(importlib.import_module(f"{policies.__name__}.{entry.name}"), "SPEC", None)
        assert isinstance(spec, PolicySpec), f"policies/{entry.name}.py defines no SPEC"
        assert spec.name == entry.name, f"policies/{entry.name}.py names its SPEC {spec.name!r}"
        specs[spec.name] = spec
    return specs


def length_policy(text: str) -> LengthPolicy:
    """The policy of `name` or `name=number`; an unknown one is a ValueError that lists them all."""
    name, given, number = text.partition("=")
    known = policy_specs()
    if name not in known:
        raise ValueError(f"policy: got {name!r}, expected one of {', '.join(known)}")
    spec = known[name]
    if not given:
        return spec.new(None)
    if spec.value is None:
        raise ValueError(f"policy: got {text!r}, but {name} takes no number; leave it out")
    try:
        value = float(number)
    except ValueError:
        raise ValueError(f"policy: got {text!r}, expected {name}=NUMBER, {spec.value}") from None
    return spec.new(value)


def rows_to_depth(outlook: Outlook, depth_B: Tensor) -> Tensor:
    """Rows of a request that verifies as many nodes as there are up to a depth."""
    within_BM = (outlook.depth_BM > 0) & (outlook.depth_BM <= depth_B[:, None])
    return 1 + within_BM.sum(dim=-1)


def share(outlook: Outlook, count: Tensor) -> Tensor:
    """Rows per request when the `count` (a scalar) most probable nodes of the whole batch are verified.

    Ties go to the earlier request, and within a request to the earlier node.
    """
    batch, nodes = outlook.reach_BM.shape
    order = outlook.reach_BM.flatten().sort(descending=True, stable=True).indices
    taken = (torch.arange(batch * nodes, device=order.device) < count).to(torch.int64)
    return torch.ones_like(outlook.depth_BM[:, 0]).scatter_add(0, order // nodes, taken)
