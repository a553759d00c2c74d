"""`specrun doctor --measure`: what a round costs on this machine, by the rows it verifies and the length of its context."""

import json
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from specrun import Sampling
from specrun.assemble import drafter_folder, target_folder
from specrun.costs import CostTable
from specrun.measure import CONTEXTS, known_costs
from specrun_cli.columns import WIDTH, table
from specrun_cli.opening import DRAFTING, MODEL, open_engine

_BAR = 30


def run(given: Mapping[str, Any]) -> None:
    """Measure anew, store, print."""
    contexts = _contexts(given.get("contexts"))
    engine = open_engine({"method": DRAFTING, **given}, Sampling())
    model, offline = given.get("model", MODEL), "offline" in given
    if engine.method.growth == "plain":
        raise ValueError(
            f"method: got {engine.method.name}, which drafts nothing; expected one with a drafter"
        )
    draft = drafter_folder(model, engine.method, given.get("draft"), offline=offline)
    with tqdm(desc="rounds", disable=None) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        costs = known_costs(
            engine,
            target_folder(model, offline=offline),
            draft,
            contexts=contexts,
            again=True,
            progress=progress,
        )
    if "json" in given:
        print(json.dumps(costs.as_json()))
        return
    embedding = engine.parts.target.embedding
    print(
        f"{engine.method.name}, model {model}, {embedding.device}, {str(embedding.dtype).removeprefix('torch.')}"
    )
    for index, context in enumerate(costs.contexts):
        print()
        print(_context(costs, index, context))


def _contexts(text: str | None) -> tuple[int, ...]:
    if text is None:
        return CONTEXTS
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise ValueError(f"contexts: got {text!r}, expected lengths from 1, as in 128,512")
    return found


def _context(costs: CostTable, index: int, context: int) -> str:
    """Milliseconds of one context, by width, with a bar for the whole round."""
    plain, longest = costs.plain[index], max(costs.round[index])
    names = list(costs.stages)
    rows = []
    for place, width in enumerate(costs.widths):
        total = costs.round[index][place]
        stages = (costs.stages[name][index][place] for name in names)
        rows.append([str(width), *(f"{1000 * one:.2f}" for one in (*stages, total)), f"{total / plain:.2f}"])
    lines = [
        f"context {context}: ms of a round by rows verified; plain decoding takes {1000 * plain:.2f}",
        table(["rows", *names, "round", "plain steps"], rows),
        "",
        *(
            f"{width:5d} {'#' * max(1, round(_BAR * total / longest)):{_BAR}} {1000 * total:.2f} ms"[:WIDTH]
            for width, total in zip(costs.widths, costs.round[index], strict=True)
        ),
    ]
    return "\n".join(lines)
