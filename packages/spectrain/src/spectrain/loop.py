"""Batches, an objective and an optimiser go in; trained parameters, a log and checkpoints come out.

It does not know what is trained: targets, drafters and heads differ in their objective alone.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from spectrain.checkpoints import RunState, load_run, save_atomic, save_run
from spectrain.optim import Optimiser, Schedule
from spectrain.workers import ALONE, Workers

BatchT = TypeVar("BatchT")


class Loss(NamedTuple):
    """What an objective returns for one batch."""

    loss: Tensor  # scalar with a gradient
    metrics: Mapping[str, Tensor]  # scalars for the log, without gradients


class Progress(Protocol):
    """Who is told about every step; a progress bar, usually."""

    def __call__(self, step: int, values: Mapping[str, float]) -> None:
        """Hear of the steps done and the values that were logged last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """How long to run and what to keep."""

    seed: int  # of every random draw
    accumulation: int = 1  # batches of one optimiser step, over all processes together
    autocast: torch.dtype | None = (
        None  # of the products inside the objective; parameters and their updates stay fp32
    )
    average: float | None = None  # decay of a moving average of the parameters; None keeps none
    log_every: int = 10  # steps between lines of the log
    evaluate_every: int = 0  # steps between evaluations; 0 leaves them out
    checkpoint_every: int = 100  # steps between checkpoints
    milestones: tuple[int, ...] = ()  # steps whose checkpoint is kept under a name of its own


@dataclass(kw_only=True)
class Loop(Generic[BatchT]):
    """One run. The optimiser must hold the parameters of `model` and no others."""

    model: nn.Module
    optimiser: Optimiser
    schedule: Schedule
    config: LoopConfig
    folder: Path  # receives log.jsonl, last.pt and the milestones
    batch: Callable[[int], BatchT]  # the batch with a running number
    objective: Callable[[BatchT, torch.Generator], Loss]  # random draws come from the generator only
    evaluate: Callable[[], Mapping[str, float]] | None = None
    progress: Progress | None = None
    workers: Workers = ALONE

    def run(self, *, resume: bool = False) -> None:
        """Train to the end of the schedule, from the last checkpoint if `resume` finds one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        average = self._copy() if self.config.average is not None else {}
        step = 0
        if resume and (self.folder / "last.pt").is_file():
            step = self._load(average)
        if self.workers.first:
            cut_log(self.folder / "log.jsonl", step)
        started, logged = time.perf_counter(), step
        while step < self.schedule.steps:
            factor = self.schedule.factor(step)
            metrics = self._forward_backward(step)
            metrics["gradient_norm"] = self.optimiser.step(factor)
            step += 1
            self._update(average)
            values: dict[str, float] = {}
            if step % self.config.log_every == 0 or step == self.schedule.steps:
                values = {name: float(value) for name, value in metrics.items()}
                values |= {
                    "factor": factor,
                    "seconds_per_step": (time.perf_counter() - started) / (step - logged),
                }
                started, logged = time.perf_counter(), step
            # all processes measure: a target that is spread over them runs nowhere alone
            if self.evaluate is not None and self._due(step, self.config.evaluate_every):
                values |= self.evaluate()
                started, logged = time.perf_counter(), step
            if self.workers.first:
                self._keep(step, values, average)

    def _keep(self, step: int, values: dict[str, float], average: dict[str, Tensor]) -> None:
        if values:
            self._log({"step": step, **values})
        if self.progress is not None:
            self.progress(step, values)
        if self._due(step, self.config.checkpoint_every):
            self._save("last.pt", step, average)
        if step in self.config.milestones:
            self._save(f"step-{step}.pt", step, average)

    def _forward_backward(self, step: int) -> dict[str, Tensor]:
        """Gradients of one optimiser step; returns the mean of the logged values over its batches."""
        count = self.config.accumulation
        totals: dict[str, Tensor] = {}
        for number in self.workers.share(range(step * count, (step + 1) * count)):
            batch = self.batch(number)
            generator = torch.Generator().manual_seed(draw_seed(self.config.seed, number))
            with self._autocast():
                found = self.objective(batch, generator)
            if not math.isfinite(float(found.loss.detach())):
                path = self.folder / f"not-finite-{step}.pt"
                content = {"step": step, "number": number, "batch": tuple(batch), "parameters": self._copy()}  # type: ignore[arg-type]  # batches are named tuples
                save_atomic(path, content)
                raise FloatingPointError(
                    f"loss: got {float(found.loss.detach())} at step {step}, batch kept in {path.name}"
                )
            (found.loss / count).backward()
            for name, value in {"loss": found.loss.detach(), **found.metrics}.items():
                totals[name] = totals.get(name, torch.zeros(())) + value.cpu() / count
        self.workers.sum_gradients(self.model.parameters())
        return self.workers.sum_values(totals)

    def _autocast(self) -> torch.autocast:
        dtype = self.config.autocast
        device = next(self.model.parameters()).device.type
        return torch.autocast(device, dtype=dtype or torch.bfloat16, enabled=dtype is not None)

    def _due(self, step: int, every: int) -> bool:
        return every > 0 and (step % every == 0 or step == self.schedule.steps)

    @torch.no_grad()
    def _update(self, average: dict[str, Tensor]) -> None:
        if self.config.average is not None:
            for name, parameter in self.model.named_parameters():
                average[name].lerp_(parameter, 1 - self.config.average)

    def _copy(self) -> dict[str, Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}

    def _save(self, name: str, step: int, average: dict[str, Tensor]) -> None:
        state = RunState(step, self.config.seed, self._copy(), self.optimiser.state(), average)
        save_run(self.folder / name, state)

    def _load(self, average: dict[str, Tensor]) -> int:
        state = load_run(self.folder / "last.pt")
        if state.seed != self.config.seed:
            raise ValueError(
                f"resume: got seed {self.config.seed}, expected {state.seed} as saved; use that seed"
            )
        if state.average.keys() != average.keys():
            raise ValueError("resume: got another choice of a moving average than was saved; keep the choice")
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(state.parameters[name])
        average.update(state.average)
        self.optimiser.load(state.optimiser)
        return state.step

    def _log(self, values: Mapping[str, float]) -> None:
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({name: round(value, 6) for name, value in values.items()}) + "\n")


def cut_log(path: Path, step: int) -> None:
    """Drop what the log says of later steps: a run that goes on from a checkpoint takes them again."""
    if not path.is_file():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        # a kill may have left half a line
        if line.endswith("}") and json.loads(line)["step"] <= step:
            kept.append(line + "\n")
    temporary = path.with_suffix(".part")
    temporary.write_text("".join(kept), encoding="utf-8")
    temporary.replace(path)


def draw_seed(seed: int, number: int) -> int:
    """Seed of the random draws of one batch: far apart for neighbours, as a linear generator wants it."""
    return (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + 1) % 2**63
