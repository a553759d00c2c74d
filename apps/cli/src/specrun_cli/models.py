"""`specrun models`: the models that have a name, their drafters, and what of them is on this disk."""

import json
from typing import Any

from specrun.catalogue import Listed, Offer, catalogue
from specrun.diffusion.methods import DIFFUSION_METHODS
from specrun.methods import methods
from specrun_cli.columns import paragraph, table


def run(*, as_json: bool) -> None:
    """Print the table."""
    models = catalogue()
    if as_json:
        print(json.dumps({"models": [_entry(model) for model in models]}))
        return
    print(
        table(
            ("MODEL", "SIZE", "DOWNLOAD", "ON DISK", "LICENCE"),
            [
                (
                    model.name,
                    model.parameters,
                    "none" if model.embedded else f"{model.gigabytes:.1f} GB",
                    _on_disk(model.weights),
                    model.licence + (", gated" if model.gated else ""),
                )
                for model in models
            ],
        )
    )
    for model in models:
        print(
            f"\n{model.name}: {'comes with specrun' if model.embedded else model.weights.source.partition('@')[0]}"
        )
        rows = [
            (f"  {', '.join(_methods_of(head))}", offer.source.partition("@")[0], _on_disk(offer))
            for head, offer in model.drafters.items()
        ]
        if rows:
            print(table(("  METHODS", "DRAFTER", "ON DISK"), rows))
        elif model.diffusion:
            print(f"  methods {', '.join(DIFFUSION_METHODS)}")
        else:
            print("  no drafter; method ar alone")
    print()
    print(
        paragraph(
            "",
            "--model also takes a folder, or owner/name[@revision] of any Qwen3, Llama or LLaDA2 model on the Hugging Face hub;"
            " --draft likewise. Where a revision is pinned, --json shows it.",
            indent=0,
        )
    )


def _methods_of(head: str) -> list[str]:
    return [name for name, method in methods().items() if method.corrector == head]


def _on_disk(offer: Offer) -> str:
    return "no" if offer.folder is None else "yes"


def _entry(model: Listed) -> dict[str, Any]:
    return {
        "name": model.name,
        "source": model.weights.source,
        "parameters": model.parameters,
        "gigabytes": model.gigabytes,
        "licence": model.licence,
        "gated": model.gated,
        "embedded": model.embedded,
        "diffusion": model.diffusion,
        "folder": _folder(model.weights),
        "drafters": [
            {"head": head, "methods": _methods_of(head), "source": offer.source, "folder": _folder(offer)}
            for head, offer in model.drafters.items()
        ],
    }


def _folder(offer: Offer) -> str | None:
    return None if offer.folder is None else str(offer.folder)
