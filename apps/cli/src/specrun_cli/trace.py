"""`specrun trace`: a prompt in, its generation laid open round by round out, as a page or as JSON."""

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from specrun import Engine, Sampling
from specrun.catalogue import default_draft
from specrun.text import TextStream
from specrun.trace import Choice, Trace, TracedRound, trace
from specrun_cli.opening import (
    DRAFTING,
    MODEL,
    announce,
    enough_memory,
    open_engine,
    prompt_ids,
    read_sampling,
)
from specrun_cli.prompt import read_prompt

PLACE = "@TRACE@"
"""Where the page takes the record."""


def run(given: Mapping[str, Any]) -> None:
    """Check, load, decode, write."""
    if not given.keys() & {"html", "json"}:
        raise ValueError("output: got none, expected --html FILE, --json or both")
    page = Path(given["html"]).expanduser() if "html" in given else None
    if page is not None and (page.is_dir() or not page.parent.is_dir()):
        raise ValueError(f"html: got {str(page)!r}, expected a file in a folder that exists")
    with enough_memory():
        record = _record(given)
    if page is not None:
        _write(page, as_page(record))
    if "json" in given:
        print(json.dumps(record))
    else:
        print(f"written: {page}")


def _record(given: Mapping[str, Any]) -> dict[str, Any]:
    prompt = read_prompt(given)
    sampling = read_sampling(given)
    engine = open_engine({"method": DRAFTING, **given}, sampling)
    model = given.get("model", MODEL)
    ids = prompt_ids(engine, prompt, given)
    seen = trace(engine, ids, sampling)
    announce(model)
    return as_record(seen, engine, sampling, prompt=prompt, model=model, draft=given.get("draft"))


def as_record(
    seen: Trace, engine: Engine, sampling: Sampling, *, prompt: str, model: str, draft: str | None
) -> dict[str, Any]:
    """Everything that the page shows; keys are part of the interface."""
    stats = seen.generation.stats
    return {
        "prompt": prompt,
        "text": seen.generation.text,
        "tokens": _tokens(seen, engine, sampling),
        "rounds": [_round(one, engine) for one in seen.rounds],
        "method": engine.method.name,
        "model": model,
        "draft": draft or default_draft(model, engine.method),
        "device": str(engine.parts.target.embedding.device),
        "dtype": str(engine.parts.target.embedding.dtype).removeprefix("torch."),
        "temperature": sampling.temperature,
        "settings": _settings(engine, sampling),
        "finish_reason": seen.generation.finish,
        "prompt_tokens": stats.prompt_tokens,
        "tokens_per_round": stats.tokens_per_round,
        "prefill_seconds": stats.prefill_seconds,
        "decode_seconds": stats.decode_seconds,
        "stages": stats.stage_seconds,
    }


def as_page(record: Mapping[str, Any]) -> str:
    """One HTML file that needs nothing else."""
    template = resources.files("specrun_cli").joinpath("page/trace.html").read_text(encoding="utf-8")
    # no text of a model can end the element that holds it
    return template.replace(PLACE, json.dumps(record).replace("<", "\\u003c"))


def _tokens(seen: Trace, engine: Engine, sampling: Sampling) -> list[dict[str, Any]]:
    """The answer by token. Text that a token only begins stands with the one that completes it."""
    assert engine.tokenizer is not None, "engines of the command line have one"
    stream = TextStream(engine.tokenizer, sampling.stop)
    spelling = engine.tokenizer.spelling
    texts = []
    for token in seen.generation.token_ids:
        stream.push(token)
        texts.append(stream.take())
    rest = stream.finish()
    if rest:
        texts[-1] += rest
    return [
        {"id": token, "spelling": spelling(token), "text": text}
        for token, text in zip(seen.generation.token_ids, texts, strict=True)
    ]


def _round(one: TracedRound, engine: Engine) -> dict[str, Any]:
    assert engine.tokenizer is not None, "engines of the command line have one"
    spelling = engine.tokenizer.spelling

    def choice(item: Choice) -> dict[str, Any]:
        return {"id": item.token_id, "spelling": spelling(item.token_id), "target": item.target}

    return {
        "first": one.first,
        "kept": one.kept,
        "accepted": one.accepted,
        "bonus": choice(one.bonus),
        "nodes": [
            {
                "id": node.token_id,
                "spelling": spelling(node.token_id),
                "parent": node.parent,
                "depth": node.depth,
                "draft": node.draft,
                "path": node.path,
                "target": node.target,
                "accepted": node.accepted,
                "choices": [choice(item) for item in node.choices],
            }
            for node in one.nodes
        ],
        "stages": one.stage_seconds,
    }


def _settings(engine: Engine, sampling: Sampling) -> list[str]:
    """What makes this run another one than its neighbours, in words."""
    plan = engine.plan_for([sampling])
    said = [f"temperature {sampling.temperature:g}"]
    if sampling.temperature > 0:
        said.append(f"seed {sampling.seed}")
    for name, value in (("top-p", sampling.top_p), ("top-k", sampling.top_k), ("min-p", sampling.min_p)):
        if value not in {0, 1}:
            said.append(f"{name} {value:g}")
    if plan.slots:
        said.append(f"blocks of {plan.block_size}" if plan.shape is None else f"trees of {plan.shape.nodes}")
    return said


def _write(path: Path, text: str) -> None:
    """The whole file or none of it."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
