"""A round as one compiled graph, and on CUDA as one replayed launch: the same callable as `step`, and the same ids.

The one file that compiles or captures. A graph is fixed to a plan and to a span of cache rows; spans are few, since they
double. Compiled code is kept on disk, so that the next process finds it.
"""

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import torch
from torch import Tensor

from specrun.products import Committed
from specrun.state import DecodeState
from specrun.step import Clock, Parts, RoundPlan, Step, Watch, no_clock, step

LEAST_SPAN = 256
"""Cache rows of the smallest graph: below this, attention costs less than another graph would."""


def graphed_step(device: torch.device) -> Step:
    """The step of an engine on a device: compiled, and on CUDA captured as well."""
    compiled = Compiled()
    return Captured(compiled) if device.type == "cuda" else compiled


def widened(rows: int) -> int:
    """The next size that graphs are made for: a power of two."""
    return max(LEAST_SPAN, 1 << (rows - 1).bit_length())


class Compiled:
    """`step` through `torch.compile`, one whole graph per plan, span and size of the batch.

    Nothing inside is timed apart: the clock hears of a stage "round". A round that is watched runs as it stands.
    """

    def __init__(self, backend: str = "inductor") -> None:
        self._backend = backend
        self._graphs: dict[tuple[RoundPlan, int, torch.Size], Callable[..., Committed]] = {}

    def __call__(
        self,
        state: DecodeState,
        parts: Parts,
        plan: RoundPlan,
        *,
        span: int,
        clock: Clock = no_clock,
        watch: Watch | None = None,
    ) -> Committed:
        """Advance every row by one round, as `step` does."""
        if watch is not None:
            return step(state, parts, plan, span=span, clock=clock, watch=watch)
        span = min(widened(span), state.capacity)
        key = plan, span, state.tokens_BT.shape
        if key not in self._graphs:
            keep_compiled_code()
            self._graphs[key] = torch.compile(_round(), fullgraph=True, dynamic=False, backend=self._backend)
        committed = self._graphs[key](state, parts, plan, span)
        clock("round")
        return committed


class Captured:
    """A step recorded as a CUDA graph per plan and span, over the buffers of the state it was recorded with.

    What a replay returns lies in buffers of the graph: the next replay overwrites it, so the host reads it before. The
    widest graphs should come first, as later ones share the memory of the first.
    """

    def __init__(self, run: Step) -> None:
        self._run = run
        self._graphs: dict[tuple[RoundPlan, int], tuple[torch.cuda.CUDAGraph, Committed]] = {}
        self._state: DecodeState | None = None

    def __call__(
        self,
        state: DecodeState,
        parts: Parts,
        plan: RoundPlan,
        *,
        span: int,
        clock: Clock = no_clock,
        watch: Watch | None = None,
    ) -> Committed:
        """Advance every row by one round; the first call of a plan and span records it."""
        if watch is not None:
            return self._run(state, parts, plan, span=span, clock=clock, watch=watch)
        if state is not self._state:
            # graphs write to the addresses they were recorded with
            self._graphs.clear()
            self._state = state
        span = min(widened(span), state.capacity)
        if (plan, span) not in self._graphs:
            self._graphs[plan, span] = self._record(state, parts, plan, span)
        graph, committed = self._graphs[plan, span]
        graph.replay()
        clock("round")
        return committed

    def _record(
        self, state: DecodeState, parts: Parts, plan: RoundPlan, span: int
    ) -> tuple[torch.cuda.CUDAGraph, Committed]:
        # kernels are compiled and library handles made per stream, which a recording could not survive
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            rehearse(lambda: self._run(state, parts, plan, span=span), state, times=3)
        pool = next((graph.pool() for graph, _ in self._graphs.values()), None)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            committed = self._run(state, parts, plan, span=span)
        torch.cuda.current_stream().wait_stream(stream)
        return graph, committed


def rehearse(run: Callable[[], object], state: DecodeState, *, times: int) -> None:
    """Run rounds and take them back.

    Caches need no copy: a round writes only rows behind the length, which the next round at that length writes again.
    """
    buffers = [getattr(state, item.name) for item in fields(state)]
    held = [(buffer, buffer.clone()) for buffer in buffers if isinstance(buffer, Tensor)]
    for _ in range(times):
        run()
        for buffer, before in held:
            buffer.copy_(before)


def keep_compiled_code() -> None:
    """Let compiled code outlive the process and its temporary files, unless the user has said where it goes."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(home / "specrun" / "compiled"))


def _round() -> Callable[..., Committed]:
    """A function with a code object of its own: the compiler counts recompilations by those, and forgets none."""

    def whole(state: DecodeState, parts: Parts, plan: RoundPlan, span: int) -> Committed:
        return step(state, parts, plan, span=span)

    whole.__code__ = whole.__code__.replace()
    return whole
