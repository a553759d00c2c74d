"""An engine in, what its rounds cost on this machine out, by the rows they verify and by the length of their context.

Rounds are run on a request that is complete: they do all their work and commit nothing, so that every one of them stands
at the same context. Widths take turns, so that a slow moment of the machine falls on all of them.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from speccorrect.policy import Costs, Outlook
from specrun.clock import StageClock
from specrun.config import Sampling
from specrun.costs import CostTable
from specrun.engine import Engine
from specrun.loop import SPAN
from specrun.stages.prefill import prefill
from specrun.state import DecodeState, allocate
from specrun.step import Parts, RoundPlan, plain_plan, step
from specrun.store import machine, read, weights, write

CONTEXTS = (128, 512)
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
REPEATS = 7
WARM_UP = 2
_REST = "rest"

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Told how many of how many rounds are done."""


@dataclass(frozen=True, slots=True)
class _Forced:
    """So many rows, at the price of a policy that looks."""

    count: int
    sequential = True
    priced = False
    evidence: Final = "corrected"

    def rows(self, outlook: Outlook, costs: Costs) -> Tensor:
        del costs
        return outlook.depth_BM.new_full((outlook.depth_BM.shape[0],), self.count)


def measure_costs(
    engine: Engine,
    *,
    contexts: Sequence[int] = CONTEXTS,
    widths: Sequence[int] = WIDTHS,
    batch: int = 1,
    repeats: int = REPEATS,
    progress: Progress | None = None,
) -> CostTable:
    """Seconds of rounds of every width at every context that the engine's models have room for.

    Of every stage the least of `repeats` counts, not the median: whatever else the machine does at the time only adds.
    """
    full = engine.plan_for([Sampling()])
    if full.slots == 0:
        raise ValueError(f"costs: method {engine.method.name} drafts nothing, expected one that does")
    room = engine.context - max(full.rows, full.block_size) - 1
    fitting = tuple(sorted({min(context, room) for context in contexts}))
    if not fitting or fitting[0] < 1:
        raise ValueError(f"contexts: got {list(contexts)}, expected lengths from 1 to {room}")
    widths = (*(width for width in widths if width < full.rows), full.rows)
    drafting = {width: replace(full, policy=_Forced(width)) for width in widths}
    plain = plain_plan(full)
    alone = Parts(target=engine.parts.target)
    total, done = len(fitting) * (len(widths) + 1) * (repeats + WARM_UP), 0
    runs: dict[tuple[int, int], list[dict[str, float]]] = {}
    for context in fitting:
        state = _standing(engine, full, context, batch)
        for repeat in range(-WARM_UP, repeats):
            for width in (0, *widths):
                plan = drafting[width] if width else plain
                run = _round(state, engine.parts if width else alone, plan, context)
                if repeat >= 0:
                    runs.setdefault((context, width), []).append(run)
                done += 1
                if progress is not None:
                    progress(done, total)
    least = {key: {name: min(run[name] for run in found) for name in found[0]} for key, found in runs.items()}
    names = [name for name in least[fitting[0], widths[0]] if name != _REST]
    return CostTable(
        batch=batch,
        contexts=fitting,
        widths=widths,
        round=tuple(tuple(sum(least[context, width].values()) for width in widths) for context in fitting),
        plain=tuple(sum(least[context, 0].values()) for context in fitting),
        stages={
            name: tuple(tuple(least[context, width][name] for width in widths) for context in fitting)
            for name in names
        },
    )


def known_costs(
    engine: Engine,
    target: Path,
    draft: Path,
    *,
    contexts: Sequence[int] = CONTEXTS,
    batch: int = 1,
    again: bool = False,
    progress: Progress | None = None,
) -> CostTable:
    """The costs that were measured before for these weights on this machine; else, or `again`, measured and stored."""
    plan = engine.plan_for([Sampling()])
    embedding = engine.parts.target.embedding
    described = {
        **machine(embedding.device, embedding.dtype),
        "target": weights(target),
        "draft": weights(draft),
        "method": engine.method.name,
        "block_size": plan.block_size,
        "rows": plan.rows,
        "accept": plan.accept,
        "contexts": list(contexts),
        "batch": batch,
    }
    if not again:
        held = read("costs", described)
        if held is not None:
            return CostTable.from_json(held)
    log.info("measuring what rounds of %s cost on this machine, once", engine.method.name)
    table = measure_costs(engine, contexts=contexts, batch=batch, progress=progress)
    write("costs", described, table.as_json())
    return table


def _standing(engine: Engine, plan: RoundPlan, context: int, batch: int) -> DecodeState:
    """Requests that have read `context` tokens and are complete."""
    room = context + max(plan.rows, plan.block_size, plan.path) + 1
    capacity = -(-room // SPAN) * SPAN
    parts = engine.parts
    state = allocate(
        parts.target, parts.drafter, batch=batch, capacity=capacity, path=plan.path, penalties=False
    )
    vocab = parts.target.config.vocab_size
    ids = torch.arange(context, device=state.tokens_BT.device) * 7919 % vocab
    for row in range(batch):
        state.admit(row, Sampling(max_new_tokens=1), (), row)
        prefill(state, parts.target, parts.drafter, row, ids, plan.law)
    return state


def _round(state: DecodeState, parts: Parts, plan: RoundPlan, context: int) -> dict[str, float]:
    """Seconds by stage, and those that belong to none."""
    clock = StageClock(state.tokens_BT.device)
    room = context + max(plan.rows, plan.block_size, plan.path) + 1
    span = min(-(-room // SPAN) * SPAN, state.capacity)
    started = time.perf_counter()
    clock("start")
    step(state, parts, plan, span=span, clock=clock).done_B.tolist()  # the host's wait for the device
    took = time.perf_counter() - started
    stages = clock.seconds()
    return {**stages, _REST: max(0.0, took - sum(stages.values()))}
