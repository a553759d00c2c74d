"""The host's side of decoding: requests into batch rows, rounds, and what came out of them.

Rows advance independently; a row that is done takes the next request while the others go on.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch

from specrun.config import Sampling
from specrun.fallback import Fallback
from specrun.products import Committed
from specrun.stages.prefill import catch_up, prefill
from specrun.state import DecodeState
from specrun.stats import Stats
from specrun.step import Clock, Parts, RoundPlan, Step, Watch, no_clock, plain_plan, step
from specrun.text import TextStream

Finish = Literal["stop", "length"]

SPAN = 64
"""Cache rows are read in multiples of this many, so that shapes repeat."""


@dataclass(slots=True, kw_only=True)
class Request:
    """One generation from its prompt to its end; the loop fills what follows `stop_ids`."""

    index: int  # its number under its seed
    prompt: list[int]
    sampling: Sampling
    stop_ids: tuple[int, ...]
    text: TextStream | None = None  # None leaves the answer as ids, and stop texts unseen
    kept: int = 0  # leading rows of the caches that hold this prompt already; below its length
    settled: int = 0  # leading ids, the answer's included, whose rows no later round will write
    missed: bool = False  # rounds since then were plain, so that the drafter knows nothing of them
    tokens: list[int] = field(default_factory=list)
    stats: Stats = field(default_factory=Stats)
    finish: Finish | None = None
    dropped: bool = False  # nobody waits for it any more; set from outside, between two rounds


def decode(
    state: DecodeState,
    parts: Parts,
    plan: RoundPlan,
    requests: Iterable[Request],
    clock: Clock = no_clock,
    watch: Watch | None = None,
    fallback: Fallback | None = None,
    run: Step = step,
) -> Iterator[Request]:
    """Run all requests and yield each one whenever it has new tokens, for the last time with `finish` set.

    With a `fallback` only those rounds draft that it expects to pay.
    """
    waiting = iter(requests)
    rows: list[Request | None] = [None] * state.length_B.shape[0]
    lengths = [0] * len(rows)
    alone, alone_plan = Parts(target=parts.target), plain_plan(plan)
    state.clear()
    while True:
        for row, held in enumerate(rows):
            if held is not None and held.dropped:
                state.retire(row)
                rows[row] = None
            if rows[row] is None:
                yield from _admit(state, parts, plan, waiting, rows, row)
                admitted = rows[row]
                lengths[row] = 0 if admitted is None else len(admitted.prompt)
                if fallback is not None and admitted is not None:
                    fallback.begin()
        running = [row for row, held in enumerate(rows) if held is not None]
        if not running:
            return
        started = time.perf_counter()
        clock("start")
        drafts = fallback is None or fallback.drafts(lambda: _catching_up(parts, rows, lengths))
        if drafts:
            _catch_up(state, parts, rows, lengths)
        used, round_plan = (parts, plan) if drafts else (alone, alone_plan)
        # idle rows write behind their length too, which is 0
        furthest = max(lengths) + max(round_plan.rows, round_plan.block_size, round_plan.path) + 1
        span = min(-(-furthest // SPAN) * SPAN, state.capacity)
        outcomes = _read(run(state, used, round_plan, span=span, clock=clock, watch=watch))
        seconds = time.perf_counter() - started
        if fallback is not None:
            _note(fallback, parts, [outcomes[row] for row in running], len(rows), span, drafts=drafts)
        for row in running:
            request = rows[row]
            assert request is not None
            # what a plain round leaves behind, the drafter has not seen
            request.settled = lengths[row] if drafts else request.settled
            request.missed = request.missed if drafts else True
            lengths[row] += len(outcomes[row].tokens)
            _take(request, outcomes[row], round_plan, seconds)
            if request.finish is not None:
                state.retire(row)
                rows[row] = None
            yield request


def _catching_up(parts: Parts, rows: list[Request | None], lengths: list[int]) -> float:
    """Seconds that the target would need to read again what the drafter missed, by the costs of its passes."""
    assert parts.costs is not None, "a fallback goes by costs"
    return sum(
        parts.costs.seconds(length, length - request.settled)
        for request, length in zip(rows, lengths, strict=True)
        if request is not None and request.missed
    )


def _catch_up(state: DecodeState, parts: Parts, rows: list[Request | None], lengths: list[int]) -> None:
    for row, request in enumerate(rows):
        if request is not None and request.missed and parts.drafter is not None:
            catch_up(state, parts.target, parts.drafter, row, request.settled, lengths[row])
            request.missed = False


def _note(
    fallback: Fallback, parts: Parts, outcomes: list["_Outcome"], batch: int, span: int, *, drafts: bool
) -> None:
    assert parts.costs is not None, "a fallback goes by costs"
    plain = parts.costs.plain_at(span)
    if drafts:
        tokens = sum(len(outcome.tokens) for outcome in outcomes) / len(outcomes)
        fallback.drafted(tokens, parts.costs.seconds(span, outcomes[0].rows * batch), plain)
    else:
        fallback.decoded(plain)


@dataclass(frozen=True, slots=True)
class _Outcome:
    tokens: list[int]
    accepted: int
    stopped: bool
    done: bool
    rows: int  # verified of every request


def _read(committed: Committed) -> list[_Outcome]:
    """The one transfer from the device per round."""
    flags = torch.stack(
        [committed.count_B, committed.accepted_B, committed.stopped_B.long(), committed.done_B.long()], dim=1
    )
    table = torch.cat([flags, committed.new_BP], dim=1).tolist()
    return [
        _Outcome(row[4 : 4 + row[0]], row[1], bool(row[2]), bool(row[3]), committed.rows) for row in table
    ]


def _admit(
    state: DecodeState,
    parts: Parts,
    plan: RoundPlan,
    waiting: Iterator[Request],
    rows: list[Request | None],
    row: int,
) -> Iterator[Request]:
    """Prefill the next request into a free row; requests that end with their first token never occupy it."""
    for request in waiting:
        if request.dropped:
            continue
        request.stats.prompt_tokens, request.stats.kept_tokens = len(request.prompt), request.kept
        if request.sampling.max_new_tokens == 0:
            request.finish = "length"
            yield request
            continue
        started = time.perf_counter()
        request.settled = request.kept
        state.admit(row, request.sampling, request.stop_ids, request.index, kept=request.kept)
        prompt = torch.tensor(request.prompt, dtype=torch.int64, device=state.tokens_BT.device)
        first, done = prefill(state, parts.target, parts.drafter, row, prompt, plan.law, kept=request.kept)
        request.settled = len(request.prompt)
        request.stats.tokens = 1
        request.stats.prefill_seconds = time.perf_counter() - started
        _push(request, [first], stopped=first in request.stop_ids, done=done)
        if request.finish is None:
            rows[row] = request
            yield request
            return
        state.retire(row)
        yield request


def _take(request: Request, outcome: _Outcome, plan: RoundPlan, seconds: float) -> None:
    kept = _push(request, outcome.tokens, stopped=outcome.stopped, done=outcome.done)
    # a chain says nothing of the slots that were trimmed
    slots = plan.slots if plan.shape is not None else outcome.rows - 1
    request.stats.count_round(kept=kept, accepted=outcome.accepted, slots=slots, rows=outcome.rows)
    request.stats.plain_rounds += plan.slots == 0
    request.stats.decode_seconds += seconds


def _push(request: Request, tokens: list[int], *, stopped: bool, done: bool) -> int:
    """Append tokens up to a stop text; return how many were kept."""
    for count, token in enumerate(tokens, start=1):
        request.tokens.append(token)
        if request.text is not None and request.text.push(token):
            request.finish = "stop"
            return count
    if done:
        request.finish = "stop" if stopped else "length"
    return len(tokens)
