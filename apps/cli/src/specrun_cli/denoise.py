"""`specrun generate` with a model that denoises blocks: a prompt in, the draft and its revision out.

What cannot change any more goes to standard output; a draft that is still to be revised goes to standard error.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from specrun import DiffusionEngine, DraftOptions, Sampling, load_diffusion_engine, methods
from specrun.catalogue import catalogue
from specrun.diffusion.config import PRESETS, Decoding, Refinement
from specrun.diffusion.engine import DiffusionGeneration, Progress
from specrun.diffusion.methods import DIFFUSION_METHODS
from specrun.text import TextStream
from specrun_cli.columns import WIDTH, paragraph
from specrun_cli.opening import MODEL, announce, device_of, prompt_ids, read_sampling
from specrun_cli.prompt import read_prompt

METHOD = "draft-refine"

_LABEL = 20
# what it is called here, and the field that it sets
_DECODING = {name: name for name in ("mask_threshold", "edit_threshold", "edit_steps", "reopened")}
_DECODING["block_size"] = "block"
_REFINEMENT = {
    "refine_steps": "steps",
    "refine_threshold": "edit_threshold",
    "refine_ahead": "ahead",
    "remask": "remask",
    "open_tail": "open_tail",
}
_OWN = {"preset", *_DECODING, *_REFINEMENT} - {"block_size"}
_OTHERS = {field.name for field in fields(DraftOptions)} - {"block_size"} | {"input", "output", "batch_size"}


def denoises(given: Mapping[str, Any]) -> bool:
    """Whether the request is one for block diffusion: by its method, or by its model where no method was named."""
    model, method = str(given.get("model", MODEL)), given.get("method")
    known = next((listed.diffusion for listed in catalogue() if listed.name == model), None)
    if known and method is not None and method in methods():
        raise ValueError(
            f"method: got {method} with {model}, which denoises blocks, expected {' or '.join(DIFFUSION_METHODS)}"
        )
    if known is False and method in DIFFUSION_METHODS:
        raise ValueError(
            f"method: got {method} with {model}, which writes token by token; name a model that denoises blocks,"
            " as in --model tiny-llada"
        )
    if known or method in DIFFUSION_METHODS:
        return True
    for name in sorted(_OWN & given.keys()):
        raise ValueError(
            f"{name.replace('_', '-')}: has no effect without a model that denoises blocks; leave it out"
        )
    return False


def run(given: Mapping[str, Any]) -> None:
    """Check, load, decode, print."""
    method = DIFFUSION_METHODS[given.get("method", METHOD)]
    useless = _OTHERS | (set() if method.refines else set(_REFINEMENT))
    for name in sorted(useless & given.keys()):
        raise ValueError(f"{name.replace('_', '-')}: has no effect with method {method.name}; leave it out")
    prompt, sampling = read_prompt(given), read_sampling(given)
    model = given.get("model", MODEL)
    engine = load_diffusion_engine(
        model,
        method.name,
        draft=given.get("draft"),
        device=device_of(given.get("device", "auto")),
        dtype=given.get("dtype"),
        decoding=_decoding(given),
        refinement=_refinement(given) if method.refines else None,
        offline="offline" in given,
    )
    stream = engine.stream(prompt_ids(engine, prompt, given), sampling)
    live = not given.keys() & {"json", "no_stream"}
    generation = _show(engine, _announced(stream, model), live=live)
    if "stats" in given:
        sys.stdout.flush()
        print(_block(generation, engine, given), file=sys.stderr)
    if "json" in given:
        print(_json(generation, engine, sampling, given))
    elif not live:
        print(generation.text)


def _decoding(given: Mapping[str, Any]) -> Decoding:
    chosen = {field: given[name] for name, field in _DECODING.items() if name in given}
    return replace(PRESETS[given.get("preset", "quality")], **chosen)


def _refinement(given: Mapping[str, Any]) -> Refinement:
    return Refinement(**{field: given[name] for name, field in _REFINEMENT.items() if name in given})


def _announced(pieces: Iterator[Progress], model: str) -> Iterator[Progress]:
    for number, piece in enumerate(pieces):
        if number == 0:
            announce(model)
        yield piece


def _show(engine: DiffusionEngine, pieces: Iterator[Progress], *, live: bool) -> DiffusionGeneration:
    """Print while the answer grows and changes; the draft is the answer itself where nothing revises it."""
    assert engine.tokenizer is not None, "engines of this command have one"
    text, shown, passes = TextStream(engine.tokenizer, ()), 0, 0
    latest: list[int] = []
    draft_file = sys.stderr if engine.method.refines else sys.stdout
    for piece in pieces:
        if live and piece.phase == "draft":
            for token in piece.token_ids[shown:]:
                text.push(token)
            shown = len(piece.token_ids)
            print(text.take(), end="", file=draft_file, flush=True)
        elif live and piece.changes:
            if not passes:
                print(text.finish(), file=sys.stderr)
            passes += 1
            print(f"revision {passes}: {_changes(engine, latest, piece.token_ids)}", file=sys.stderr)
        latest = piece.token_ids
        if piece.generation is not None:
            if live:
                _end(text, piece.generation, refines=engine.method.refines, passes=passes)
            return piece.generation
    raise AssertionError("the stream ended without a last piece")


def _end(text: TextStream, generation: DiffusionGeneration, *, refines: bool, passes: int) -> None:
    if not refines:
        print(text.finish())
        return
    if not passes:
        print(f"{text.finish()}\nrevision: nothing changed", file=sys.stderr)
    print(generation.text)


def _changes(engine: DiffusionEngine, before: list[int], after: list[int]) -> str:
    """What a pass changed, run by run: `'15' to '18'`."""
    assert engine.tokenizer is not None, "engines of this command have one"
    longest = max(len(before), len(after))
    runs: list[list[int]] = []
    for place in range(longest):
        if before[place : place + 1] != after[place : place + 1]:
            if runs and runs[-1][-1] == place - 1:
                runs[-1].append(place)
            else:
                runs.append([place])
    spelled = [
        " to ".join(
            repr("".join(map(engine.tokenizer.spelling, ids[found[0] : found[-1] + 1])))
            for ids in (before, after)
        )
        for found in runs
    ]
    return ", ".join(spelled)


def _json(
    generation: DiffusionGeneration, engine: DiffusionEngine, sampling: Sampling, given: Mapping[str, Any]
) -> str:
    """One line; keys are part of the interface."""
    assert engine.tokenizer is not None, "engines of this command have one"
    stats = generation.stats
    record = {
        "text": generation.text,
        "token_ids": generation.token_ids,
        "draft_text": engine.tokenizer.decode(generation.draft_ids),
        "draft_token_ids": generation.draft_ids,
        "prompt_tokens": stats.prompt_tokens,
        "tokens": stats.tokens,
        "draft_forwards": stats.draft_forwards,
        "refine_forwards": stats.refine_forwards,
        "tokens_per_forward": stats.tokens_per_forward,
        "draft_edits": stats.draft_edits,
        "edits_per_step": stats.edits_per_step,
        "method": engine.method.name,
        "model": given.get("model", MODEL),
        "draft": given.get("draft"),
        "device": str(engine.model.embedding.device),
        "dtype": _dtype(engine),
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "finish_reason": generation.finish,
        "prefill_seconds": stats.prefill_seconds,
        "draft_seconds": stats.draft_seconds,
        "refine_seconds": stats.refine_seconds,
    }
    return json.dumps(record)


def _block(generation: DiffusionGeneration, engine: DiffusionEngine, given: Mapping[str, Any]) -> str:
    """A readable block of at most 80 columns."""
    stats, draft = generation.stats, given.get("draft")
    edits = " ".join(map(str, stats.edits_per_step)) or "none"
    drafter = f", drafts by {draft}" if draft else ""
    seconds = {"prompt": stats.prefill_seconds, "draft": stats.draft_seconds, "refine": stats.refine_seconds}
    lines = [
        ("method", f"{engine.method.name}, model {given.get('model', MODEL)}{drafter}"),
        ("device", f"{engine.model.embedding.device}, {_dtype(engine)}"),
        ("tokens", f"{stats.tokens} after a prompt of {stats.prompt_tokens}, ended by {generation.finish}"),
        ("forwards", f"{stats.draft_forwards} for the draft, {stats.refine_forwards} for its refinement"),
        ("tokens per forward", f"{stats.tokens_per_forward:.2f}; the prompt's own pass does not count"),
        ("edits", f"{stats.draft_edits} inside blocks; {edits} in the passes of refinement"),
        ("seconds", ", ".join(f"{name} {value:.3f}" for name, value in seconds.items())),
    ]
    return "\n".join(paragraph(label, text, indent=_LABEL, width=WIDTH) for label, text in lines)


def _dtype(engine: DiffusionEngine) -> str:
    return str(engine.model.embedding.dtype).removeprefix("torch.")
