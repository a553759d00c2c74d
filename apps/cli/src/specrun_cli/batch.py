"""`specrun generate --input`: a file of prompts in, a file of answers out, in the same order.

Rows of a batch advance independently; a kill at any moment costs the answers that were being written and no other.
"""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from specrun import Engine, Generation, Stats
from specrun_cli.journal import Journal
from specrun_cli.lines import Line, Source, read_sources, understand
from specrun_cli.opening import MODEL, advise, announce, open_engine, read_sampling

BATCH_SIZE = 8

_SINGLE = ("prompt", "prompt_file", "no_stream", "stats", "json")
_FREE = ("run", "input", "output", "batch_size", "device", "offline")  # may change when a run goes on


def run(given: Mapping[str, Any]) -> None:
    """Decode all lines that have no answer yet; a line that cannot be decoded is reported and skipped."""
    for name in _SINGLE:
        if name in given:
            raise ValueError(f"{name.replace('_', '-')}: has no effect with --input; leave one of them out")
    if "output" not in given:
        raise ValueError("output: got none, expected a file for the answers; add --output FILE")
    if given.get("batch_size", BATCH_SIZE) < 1:
        raise ValueError(f"batch size: got {given['batch_size']}, expected at least 1")
    base = read_sampling(given)
    origin = Path(given["input"]).expanduser()
    sources = read_sources(origin)
    settings = {name: value for name, value in given.items() if name not in _FREE}
    journal = Journal(Path(given["output"]).expanduser(), settings)
    engine = open_engine(given, base)
    waiting: list[tuple[Source, Line]] = []
    skipped = []
    for source in sources:
        if not journal.answers(source.number, source.digest):
            try:
                waiting.append((source, understand(source, engine, base, given)))
            except ValueError as error:
                print(f"specrun: {origin} line {source.number}: {error}; skipped", file=sys.stderr)
                skipped.append(source.number)
    if len(skipped) == len(sources):
        raise ValueError(
            f"input: none of the {len(sources)} lines of {origin} can be decoded; nothing was written"
        )
    announce(given.get("model", MODEL))
    done = len(sources) - len(skipped) - len(waiting)
    try:
        total = _decode(engine, waiting, journal, given, done)
    except KeyboardInterrupt:
        print("specrun: stopped; the same command goes on from here", file=sys.stderr)
        raise
    journal.finish(source.number for source in sources)
    print(
        f"specrun: {len(waiting)} answers{f' beside {done} from before' if done else ''}, {total}",
        file=sys.stderr,
    )
    if skipped:
        numbers = ", ".join(map(str, skipped[:10])) + (", ..." if len(skipped) > 10 else "")
        raise ValueError(
            f"input: {len(skipped)} of {len(sources)} lines were skipped ({numbers}); the others are in {journal.output}"
        )


def _decode(
    engine: Engine,
    waiting: list[tuple[Source, Line]],
    journal: Journal,
    given: Mapping[str, Any],
    done: int,
) -> str:
    """Write every answer as it is finished; return what the whole run came to."""
    total, started = Stats(), time.perf_counter()
    tokens = longest = 0
    bar = tqdm(total=done + len(waiting), initial=done, unit=" lines", disable=None)
    pieces = engine.stream_batch(
        [line.prompt for _, line in waiting],
        [line.sampling for _, line in waiting],
        batch_size=given.get("batch_size", BATCH_SIZE),
        numbers=[0] * len(waiting),
    )
    for piece in pieces:
        tokens += len(piece.token_ids)
        bar.set_postfix_str(f"{tokens / (time.perf_counter() - started):.0f} tokens/s", refresh=False)
        if piece.generation is not None:
            source, line = waiting[piece.index]
            journal.add(source.number, source.digest, line.labels | _answer(piece.generation))
            total.add(piece.generation.stats)
            longest = max(longest, len(line.prompt) + piece.generation.stats.tokens)
            bar.update()
    bar.close()
    seconds = time.perf_counter() - started
    advise(given, engine, total, length=longest)
    return (
        f"{total.tokens} tokens in {seconds:.1f} s, {total.tokens / seconds:.0f} tokens/s,"
        f" {total.tokens_per_round:.2f} tokens per round"
    )


def _answer(generation: Generation) -> dict[str, Any]:
    stats = generation.stats
    return {
        "text": generation.text,
        "token_ids": generation.token_ids,
        "finish_reason": generation.finish,
        "prompt_tokens": stats.prompt_tokens,
        "tokens": stats.tokens,
        "rounds": stats.rounds,
        "tokens_per_round": stats.tokens_per_round,
    }
