"""What was given on the command line in, a ready engine and a checked request out; for every command that decodes."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar

import torch

from specrun import DiffusionEngine, DraftOptions, Engine, Sampling, Stats, load_engine, method
from specrun.advice import advice, drafter_known
from specrun.auto import AUTO, refuse_options
from specrun.catalogue import catalogue
from specrun.embedded import embedded_models
from specrun.plan import coupling_strength, round_plan
from specrun.state import law_plan

MODEL = "tiny"
METHOD = "auto"
DRAFTING = "dflash"
"""Where a command looks at drafting itself, so that there has to be some."""

Settings = TypeVar("Settings", Sampling, DraftOptions)


def read_sampling(given: Mapping[str, Any]) -> Sampling:
    """How to sample; an option that has no effect beside the others is an error."""
    sampling = _settings(Sampling, {**given, "stop": tuple(given.get("stop", ()))})
    refuse_without_effect(given, sampling)
    return sampling


def open_engine(given: Mapping[str, Any], sampling: Sampling, *, beside: Engine | None = None) -> Engine:
    """Check all that can be checked without weights, then load; the target comes from another engine if there is one."""
    refuse_denoisers(given.get("model", MODEL))
    options = _settings(DraftOptions, given)
    name = given.get("method", METHOD)
    compiled = "compile" in given
    if compiled and (name == AUTO or options.policy is not None):
        changing = "method auto" if name == AUTO else f"policy {options.policy}"
        raise ValueError(
            f"compile: a compiled round has one width, got {changing}, which changes it; name a method and no policy"
        )
    # for their complaints alone, which should come before a download
    if name == AUTO:
        refuse_options(options)
    else:
        round_plan(method(name), options, law_plan([sampling]), None, None)
        coupling_strength(method(name), options)
    with _notes():
        engine = load_engine(
            given.get("model", MODEL),
            name,
            draft=given.get("draft"),
            device=device_of(given.get("device", "auto")),
            dtype=given.get("dtype"),
            options=options,
            offline="offline" in given,
            target=None if beside is None else beside.parts.target,
        )
    if compiled:
        engine.compile()
    return engine


@contextmanager
def _notes() -> Iterator[None]:
    """Show what loading has to say, such as why it takes long this once."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("specrun: %(message)s"))
    logger = logging.getLogger("specrun")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def refuse_denoisers(model: str) -> None:
    """Complain about a model that does not write token by token, in commands that are about those that do."""
    if any(listed.name == model and listed.diffusion for listed in catalogue()):
        raise ValueError(
            f"model: got {model}, which denoises blocks, expected one that writes token by token;"
            " `specrun generate` alone takes both"
        )


def prompt_ids(engine: Engine | DiffusionEngine, prompt: str, given: Mapping[str, Any]) -> list[int]:
    """Ids of a prompt, in the model's chat template unless the text was to be continued as it stands."""
    if "no_chat_template" in given:
        return engine.prompt_ids(prompt)
    system, thinking = given.get("system"), given.get("thinking", False)
    ids = engine.chat_ids(prompt, system=system, thinking=thinking)
    if thinking and ids == engine.chat_ids(prompt, system=system, thinking=False):
        raise ValueError(
            "thinking: has no effect with this model, whose chat template knows none; leave it out"
        )
    return ids


def announce(model: str) -> None:
    """Say what an embedded model is, once nothing can be wrong with the request any more."""
    if model in embedded_models():
        size = next((known.parameters for known in catalogue() if known.name == model), "few")
        print(
            f"specrun: {model} is a demonstration model of {size} parameters, its text is modest;"
            " name a real one, as in --model qwen3-8b (see specrun models)",
            file=sys.stderr,
        )


def advise(
    given: Mapping[str, Any], engine: Engine, stats: Stats, *, length: int, known: set[str] | None = None
) -> None:
    """Say on standard error what could make drafting better, if anything; `known` is what was said before."""
    drafter = drafter_known(given.get("model", MODEL), engine.method, given.get("draft"))
    if drafter is None:
        return
    sentences = advice(
        drafter,
        stats,
        length=length,
        temperature=given.get("temperature", 0.0),
        thinking=given.get("thinking", False),
        templated="no_chat_template" not in given,
    )
    said = set() if known is None else known
    for topic, sentence in sentences.items():
        if topic not in said:
            print(f"specrun: note: {sentence}", file=sys.stderr)
    said.update(sentences)


@contextmanager
def enough_memory() -> Iterator[None]:
    """Turn a device that is too small into an error like any other."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        first = str(error).partition(". ")[0]
        raise ValueError(
            f"memory: {first}; use a smaller model, a shorter prompt or --dtype bfloat16"
        ) from error


def _settings(kind: type[Settings], given: Mapping[str, Any]) -> Settings:
    """The settings that were given; the rest keeps the default that stands in their class."""
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in given.items() if name in names})


def refuse_without_effect(given: Mapping[str, Any], sampling: Sampling) -> None:
    """Complain about what was given and changes nothing; a value that says the default again is harmless."""
    defaults = Sampling()
    if sampling.temperature == 0:
        for name in ("seed", "top_p", "top_k", "min_p"):
            if given.get(name, getattr(defaults, name)) != getattr(defaults, name):
                raise ValueError(
                    f"{name.replace('_', '-')}: got {given[name]} at temperature 0, where it has no effect;"
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


def device_of(name: str) -> str:
    """A device that torch finds; `auto` prefers CUDA."""
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
