"""`specrun generate`: a prompt in, text out as it is accepted."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import torch

from specrun import DraftOptions, Engine, Generation, Piece, Sampling, load_engine, method
from specrun.catalogue import catalogue
from specrun.clock import StageClock
from specrun.embedded import embedded_models
from specrun.plan import coupling_strength, round_plan
from specrun.state import law_plan
from specrun_cli.prompt import read_prompt
from specrun_cli.report import as_block, as_json

MODEL = "tiny"
METHOD = "dflash"

Settings = TypeVar("Settings", Sampling, DraftOptions)


def run(given: Mapping[str, Any]) -> None:
    """Decode, and turn a device that is too small into an error like any other."""
    try:
        _run(given)
    except torch.OutOfMemoryError as error:
        first = str(error).partition(". ")[0]
        raise ValueError(
            f"memory: {first}; use a smaller model, a shorter prompt or --dtype bfloat16"
        ) from error


def _run(given: Mapping[str, Any]) -> None:
    """Check all that can be checked without weights, then load and decode."""
    prompt = read_prompt(given)
    sampling = _settings(Sampling, {**given, "stop": tuple(given.get("stop", ()))})
    options = _settings(DraftOptions, given)
    _refuse_without_effect(given, sampling)
    chosen = method(given.get("method", METHOD))
    # for their complaints alone, which should come before a download
    round_plan(chosen, options, law_plan([sampling]), None, None)
    coupling_strength(chosen, options, 0)
    model = given.get("model", MODEL)
    engine = load_engine(
        model,
        chosen.name,
        draft=given.get("draft"),
        device=_device(given.get("device", "auto")),
        dtype=given.get("dtype"),
        options=options,
        offline="offline" in given,
    )
    clock = StageClock(engine.parts.target.embedding.device)
    pieces = engine.stream(_ids(engine, prompt, given), sampling, clock=clock)
    live = not given.keys() & {"json", "no_stream"}
    generation = _print(_announced(pieces, model), live=live)
    generation.stats.stage_seconds.update(clock.seconds())
    if live:
        print()
    elif "json" not in given:
        print(generation.text)
    if "stats" in given:
        sys.stdout.flush()
        print(as_block(generation, engine, model=model, draft=given.get("draft")), file=sys.stderr)
    if "json" in given:
        print(as_json(generation, engine, sampling, model=model, draft=given.get("draft")))


def _settings(kind: type[Settings], given: Mapping[str, Any]) -> Settings:
    """The settings that were given; the rest keeps the default that stands in their class."""
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in given.items() if name in names})


def _refuse_without_effect(given: Mapping[str, Any], sampling: Sampling) -> None:
    """A value that says the default again is harmless."""
    defaults = Sampling()
    if sampling.temperature == 0:
        for name in ("seed", "top_p", "top_k", "min_p"):
            if getattr(sampling, name) != getattr(defaults, name):
                raise ValueError(
                    f"{name.replace('_', '-')}: got {getattr(sampling, name)} at temperature 0, where it has no effect;"
                    " leave it out or set --temperature above 0"
                )
        for name in ("draft_temperature", "couple"):
            if name in given:
                raise ValueError(
                    f"{name.replace('_', '-')}: got {given[name]} at temperature 0, where it has no effect;"
                    " leave it out or set --temperature above 0"
                )
    if "no_chat_template" in given:
        for name in ("system", "thinking"):
            if name in given:
                raise ValueError(f"{name}: has no effect with --no-chat-template; leave one of them out")


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in {"cpu", "cuda"}:
        raise ValueError(f"device: got {name!r}, expected auto, cpu, cuda or cuda:N")
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ValueError(
            f"device: got {name!r}, expected one that torch finds, and it finds {count} on CUDA; use cpu"
        )
    return name


def _ids(engine: Engine, prompt: str, given: Mapping[str, Any]) -> str | list[int]:
    if "no_chat_template" in given:
        return prompt
    system, thinking = given.get("system"), given.get("thinking", False)
    ids = engine.chat_ids(prompt, system=system, thinking=thinking)
    if thinking and ids == engine.chat_ids(prompt, system=system, thinking=False):
        raise ValueError(
            "thinking: has no effect with this model, whose chat template knows none; leave it out"
        )
    return ids


def _announced(pieces: Iterator[Piece], model: str) -> Iterator[Piece]:
    """Say what an embedded model is, once nothing can be wrong with the request any more."""
    for number, piece in enumerate(pieces):
        if number == 0 and model in embedded_models():
            size = next((known.parameters for known in catalogue() if known.name == model), "few")
            print(
                f"specrun: {model} is a demonstration model of {size} parameters, its text is modest;"
                " name a real one, as in --model qwen3-8b (see specrun models)",
                file=sys.stderr,
            )
        yield piece


def _print(pieces: Iterator[Piece], *, live: bool) -> Generation:
    for piece in pieces:
        if live and piece.text:
            print(piece.text, end="", flush=True)
        if piece.generation is not None:
            return piece.generation
    raise AssertionError("the stream ended without a last piece")
