"""`specrun methods`: every method, what it drafts with and which weights there are for it."""

import json
from dataclasses import asdict
from typing import Any

from specrun.catalogue import Listed, catalogue
from specrun.diffusion.methods import DIFFUSION_METHODS
from specrun.methods import Method, methods
from specrun_cli.columns import paragraph, table

_INDENT = 14

_ABOVE_ZERO = (
    "Above temperature 0 the default is match, which keeps the text of plain decoding under the same seed. Chains yield"
    " up to 10 % more tokens per round by reject, which keeps the law alone. Trees look at the target's noise, as"
    " calibrated with the drafter, else with trust 0.5. docs/sampling.md has the figures."
)


def run(*, as_json: bool) -> None:
    """Print the table."""
    models = catalogue()
    entries = [_entry(method, models) for method in methods().values()]
    if as_json:
        diffusion = [asdict(method) for method in DIFFUSION_METHODS.values()]
        print(json.dumps({"methods": entries, "diffusion": diffusion}))
        return
    print(
        table(
            ("METHOD", "HEAD", "GROWTH", "ACCEPT", "DEFAULT SIZES", "EMBEDDED"),
            [
                (
                    entry["name"],
                    entry["head"] or "-",
                    entry["growth"],
                    ", ".join(entry["accept"]),
                    _sizes(method),
                    "yes" if entry["embedded"] else "no",
                )
                for entry, method in zip(entries, methods().values(), strict=True)
            ],
        )
    )
    print("\nEmbedded: the model tiny, which comes with specrun, has a drafter for it.")
    print(paragraph("", _ABOVE_ZERO, indent=0) + "\n")
    for alike in _alike(entries):
        first = alike[0]
        papers = "; ".join(dict.fromkeys(entry["paper"] for entry in alike))
        print(", ".join(entry["name"] for entry in alike))
        print(paragraph("", f"{first['title']} ({papers}): {_about(first)}", indent=4))
    print("\nFor models that denoise blocks, such as tiny-llada; lossless against nothing:")
    for method in DIFFUSION_METHODS.values():
        print(method.name)
        print(paragraph("", f"{method.title} ({method.paper}): {method.summary}", indent=4))
    print("\nPublic checkpoints, by head:")
    for head in dict.fromkeys(entry["head"] for entry in entries if entry["head"]):
        found = [
            (model.name, model.drafters[head].source)
            for model in models
            if head in model.drafters and not model.embedded
        ]
        for number, (name, source) in enumerate(found or [("", "none is known; give one with --draft")]):
            label = f"  {head}" if number == 0 else ""
            print(paragraph(label, f"{name:<13}{source.partition('@')[0]}", indent=_INDENT))


def _entry(method: Method, models: list[Listed]) -> dict[str, Any]:
    drafted = method.growth != "plain"
    offers = {
        model.name: model.drafters[method.corrector] for model in models if method.corrector in model.drafters
    }
    embedded = [model for model in models if model.embedded and model.weights.folder is not None]
    return {
        "name": method.name,
        "title": method.title,
        "paper": method.paper,
        "summary": method.summary,
        "head": method.corrector,
        "growth": method.growth,
        "accept": ["match", "reject"] if method.growth == "chain" else ["match"] if drafted else [],
        "tree_budget": method.tree_budget if method.growth == "tree" else None,
        "candidates": method.candidates,
        "lanes": method.lanes,
        "branches": method.branches,
        "checkpoints": {name: offer.source for name, offer in offers.items()},
        "embedded": any(not drafted or method.corrector in model.drafters for model in embedded),
    }


def _alike(entries: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Methods that differ in nothing but their growth, together."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault((entry["title"], _about(entry)), []).append(entry)
    return list(groups.values())


def _about(entry: dict[str, Any]) -> str:
    """The summary without its growth, which stands in the table."""
    return str(entry["summary"]).removeprefix(f"{entry['growth']}: ")


def _sizes(method: Method) -> str:
    if method.growth == "plain":
        return "-"
    if method.growth == "chain":
        return "block as trained"
    parts = [f"{method.tree_budget} nodes"]
    if method.lanes is not None:
        parts.append(f"{method.lanes} lanes")
    return ", ".join(parts)
