"""Engines and prompts in, times and counts of every method out. It knows neither files nor the command line.

Methods take turns in an order that rotates from repeat to repeat, so that a slow minute of the machine falls on all.
What comes before the first measured repeat (compilation, caches of the libraries) is timed apart.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from specrun import Engine, Sampling, Stats
from specrun.clock import StageClock

Progress = Callable[[], object]
"""Called behind every run of one method over all prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All prompts once through one method."""

    seconds: float  # of decoding; prefill not counted
    rounds: int  # of the batch
    stats: Stats  # summed over requests
    stages: dict[str, float]  # seconds

    @property
    def tokens_per_second(self) -> float:
        return self.stats.round_tokens / self.seconds

    @property
    def ms_per_round(self) -> float:
        return 1000 * self.seconds / self.rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One method at one temperature and batch size."""

    method: str
    temperature: float
    batch_size: int
    rows: int  # verified per request and round
    warm_up_seconds: float
    runs: list[Run] = field(default_factory=list)

    def median(self, name: str) -> float:
        """The middle of a property of the runs."""
        return statistics.median(getattr(run, name) for run in self.runs)

    def spread(self, name: str) -> tuple[float, float]:
        """Least and most of a property of the runs."""
        values = [getattr(run, name) for run in self.runs]
        return min(values), max(values)

    @property
    def tokens_per_round(self) -> float:
        return self.runs[0].stats.tokens_per_round

    @property
    def stages(self) -> dict[str, float]:
        """Median milliseconds per round of every stage; "rest" is the host's work between them."""
        names = self.runs[0].stages
        found = {
            name: statistics.median(1000 * run.stages[name] / run.rounds for run in self.runs)
            for name in names
        }
        return {**found, "rest": max(0.0, self.median("ms_per_round") - sum(found.values()))}


class _Clock(StageClock):
    """Counts rounds as well."""

    rounds = 0

    def __call__(self, stage: str) -> None:
        self.rounds += stage == "start"
        super().__call__(stage)


def measure(
    engines: Mapping[str, Engine],
    prompts: Sequence[list[int]],
    base: Sampling,
    *,
    temperatures: Sequence[float],
    batch_sizes: Sequence[int],
    repeats: int,
    progress: Progress,
) -> list[Cell]:
    """Every method at every temperature and batch size; the order of the engines is that of the result."""
    cells: list[Cell] = []
    for temperature in temperatures:
        for batch_size in batch_sizes:
            sampling = replace(base, temperature=temperature)
            group = {}
            for name, engine in engines.items():
                started = time.perf_counter()
                _run(engine, prompts, sampling, batch_size)
                group[name] = Cell(
                    method=name,
                    temperature=temperature,
                    batch_size=batch_size,
                    rows=engine.plan_for([sampling]).rows,
                    warm_up_seconds=time.perf_counter() - started,
                )
                progress()
            names = list(engines)
            for repeat in range(repeats):
                turn = repeat % len(names)
                for name in names[turn:] + names[:turn]:
                    group[name].runs.append(_run(engines[name], prompts, sampling, batch_size))
                    progress()
            cells += group.values()
    return cells


def _run(engine: Engine, prompts: Sequence[list[int]], sampling: Sampling, batch_size: int) -> Run:
    clock = _Clock(engine.parts.target.embedding.device)
    total = Stats()
    started = time.perf_counter()
    for piece in engine.stream_batch(prompts, sampling, batch_size=batch_size, clock=clock):
        if piece.generation is not None:
            total.add(piece.generation.stats)
    if engine.parts.target.embedding.is_cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started - total.prefill_seconds
    return Run(seconds=seconds, rounds=clock.rounds, stats=total, stages=clock.seconds())


def as_records(cells: Sequence[Cell], simulated: float | None) -> list[dict[str, Any]]:
    """One object per cell. `simulated` tokens per round stand in for those of random weights."""
    found = []
    for cell in cells:
        plain = next(
            one
            for one in cells
            if one.method == "ar" and (one.temperature, one.batch_size) == (cell.temperature, cell.batch_size)
        )
        yields = 1.0 if cell.method == "ar" else simulated or cell.tokens_per_round
        steps = cell.median("ms_per_round") / plain.median("ms_per_round")
        speed = cell.median("tokens_per_second")
        faster = yields / steps if simulated else speed / plain.median("tokens_per_second")
        low, high = cell.spread("ms_per_round")
        found.append(
            {
                "method": cell.method,
                "temperature": cell.temperature,
                "batch_size": cell.batch_size,
                "rows": cell.rows,
                "tokens_per_round": round(yields, 3),
                "ms_per_round": round(cell.median("ms_per_round"), 3),
                "ms_per_round_spread": [round(low, 3), round(high, 3)],
                "plain_steps": round(steps, 3),
                "faster": round(faster, 3),
                "tokens_per_second": round(speed * (yields if simulated else 1), 1),
                "tokens_per_second_spread": [
                    round(value * (yields if simulated else 1), 1)
                    for value in cell.spread("tokens_per_second")
                ],
                "simulated": simulated is not None,
                "warm_up_seconds": round(cell.warm_up_seconds, 2),
                "stages": {name: round(value, 3) for name, value in cell.stages.items()},
                "runs": [
                    {
                        "seconds": round(run.seconds, 4),
                        "rounds": run.rounds,
                        "tokens": run.stats.round_tokens,
                    }
                    for run in cell.runs
                ],
            }
        )
    return found
