"""`specrun train`: a recipe in, a folder with trained weights out, and what they gained."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tqdm import tqdm

from specrun_cli.columns import table
from spectrain.runs.corpus import Prompt
from spectrain.runs.recipe import parse_recipe, recipe_text, shipped_recipes
from spectrain.runs.train import train
from spectrain.workers import workers_of

_SEED = 30_011  # of the embedded family's prompts: no training or held-out prompt comes from it
_DOMAINS = ("math", "code", "story")  # in which the embedded model answers
_EACH = 800


def run(given: Mapping[str, Any]) -> None:
    """List the recipes, or run one."""
    if "list" in given:
        if "recipe" in given:
            raise ValueError("--list: has no effect beside a recipe; give one of both")
        rows = [(name, parse_recipe(text, name).title) for name, text in shipped_recipes().items()]
        print(table(("RECIPE", "TRAINS"), rows))
        return
    if "recipe" not in given:
        raise ValueError("recipe: got none, expected a name or a file; see specrun train --list")
    name, text = recipe_text(given["recipe"])
    folder = Path(given.get("output", Path("runs") / name))
    device = given.get("device", "cpu")
    with _Bars() as report, workers_of(device) as workers:
        try:
            outcome = train(
                text,
                given["recipe"],
                folder,
                prompts=_prompts,
                report=report,
                shards=Path(given["data"]) if "data" in given else None,
                resume="resume" in given,
                device=device,
                workers=workers,
            )
        except FloatingPointError as error:
            raise ValueError(
                f"{error} of {folder}; lower the learning rates, or look at that batch"
            ) from error
    if not workers.first:
        return
    print("tokens per round on held-out answers, each token behind those that were drafted:")
    gains = [
        (
            domain,
            f"{before:.2f}",
            f"{outcome.after[domain]:.2f}",
            f"{outcome.after[domain] / before - 1:+.1%}",
        )
        for domain, before in outcome.before.items()
    ]
    print(table(("DOMAIN", "BEFORE", "AFTER", "GAIN"), gains))
    print(f"written: {folder / 'model'}, to be given as --draft; log, record and checkpoint beside it")
    _curves(folder)


def _curves(folder: Path) -> None:
    """Draw the log, where matplotlib is there."""
    from spectrain.plot import plot

    try:
        plot({folder.name: folder / "log.jsonl"}, folder / "curves.png")
    except ImportError:
        print("no curves.png: matplotlib is missing; pip install 'specrun-cli[plots]'", file=sys.stderr)


class _Bars:
    """A progress bar for each stage of a run, one after the other."""

    def __init__(self) -> None:
        self._stage = ""
        self._bar: tqdm[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, stage: str, done: int, total: int, values: Mapping[str, float]) -> None:
        if stage != self._stage or self._bar is None:
            self.__exit__()
            self._stage, self._bar = stage, tqdm(total=total, desc=stage, disable=None)
        if values:
            shown = {key: f"{value:.3f}" for key, value in values.items() if key != "factor"}
            self._bar.set_postfix(shown, refresh=False)
        self._bar.update(done - self._bar.n)


def _prompts(name: str) -> list[Prompt] | None:
    """The generated prompts of the embedded family."""
    if name != "tiny":
        return None
    from spectiny.corpus.documents import documents

    return [
        Prompt(document.prompt, domain) for domain in _DOMAINS for document in documents(domain, _SEED, _EACH)
    ]
