"""`specrun generate`: a prompt in, text out as it is accepted."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from specrun import Generation, Piece
from specrun.clock import StageClock
from specrun_cli.batch import run as batch
from specrun_cli.denoise import denoises
from specrun_cli.denoise import run as denoise
from specrun_cli.opening import MODEL, advise, announce, enough_memory, open_engine, prompt_ids, read_sampling
from specrun_cli.prompt import read_prompt
from specrun_cli.report import as_block, as_json


def run(given: Mapping[str, Any]) -> None:
    """Check, load, decode, print."""
    with enough_memory():
        if denoises(given):
            denoise(given)
        elif "input" in given:
            batch(given)
        else:
            _run(given)


def _run(given: Mapping[str, Any]) -> None:
    for name in ("output", "batch_size"):
        if name in given:
            raise ValueError(f"{name.replace('_', '-')}: has no effect without --input FILE; leave it out")
    prompt = read_prompt(given)
    sampling = read_sampling(given)
    engine = open_engine(given, sampling)
    model = given.get("model", MODEL)
    clock = StageClock(engine.parts.target.embedding.device)
    pieces = engine.stream(prompt_ids(engine, prompt, given), sampling, clock=clock)
    live = not given.keys() & {"json", "no_stream"}
    generation = _print(_announced(pieces, model), live=live)
    generation.stats.stage_seconds.update(clock.seconds())
    if live:
        print()
    elif "json" not in given:
        print(generation.text)
    stats = generation.stats
    sys.stdout.flush()
    advise(given, engine, stats, length=stats.prompt_tokens + stats.tokens)
    if "stats" in given:
        print(as_block(generation, engine, model=model, draft=given.get("draft")), file=sys.stderr)
    if "json" in given:
        print(as_json(generation, engine, sampling, model=model, draft=given.get("draft")))


def _announced(pieces: Iterator[Piece], model: str) -> Iterator[Piece]:
    for number, piece in enumerate(pieces):
        if number == 0:
            announce(model)
        yield piece


def _print(pieces: Iterator[Piece], *, live: bool) -> Generation:
    for piece in pieces:
        if live and piece.text:
            print(piece.text, end="", flush=True)
        if piece.generation is not None:
            return piece.generation
    raise AssertionError("the stream ended without a last piece")
