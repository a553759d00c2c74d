"""A finished generation in, its figures out: a block for people, or one JSON object."""

import json

from specrun import Engine, Generation, Sampling
from specrun.catalogue import default_draft
from specrun_cli.columns import WIDTH, paragraph

_LABEL = 18
_DEFINITION = (
    "kept tokens of the rounds / rounds. The token that the target adds to an accepted draft counts; the first token,"
    " which comes from the prompt's pass, does not, nor do tokens cut off behind a stop"
)
_ACCEPTANCE = "(by depth: of the rounds that reached it, the share that accepted its token)"


def as_json(
    generation: Generation, engine: Engine, sampling: Sampling, *, model: str, draft: str | None
) -> str:
    """One line; keys are part of the interface."""
    stats = generation.stats
    record = {
        "text": generation.text,
        "token_ids": generation.token_ids,
        "prompt_tokens": stats.prompt_tokens,
        "tokens": stats.tokens,
        "rounds": stats.rounds,
        "tokens_per_round": stats.tokens_per_round,
        "acceptance_by_depth": stats.acceptance_by_depth,
        "plain_rounds": stats.plain_rounds,
        "method": engine.method.name,
        "chosen": engine.chosen,
        "model": model,
        "draft": draft or default_draft(model, engine.method),
        "device": str(engine.parts.target.embedding.device),
        "dtype": _dtype(engine),
        "seed": sampling.seed,
        "temperature": sampling.temperature,
        "finish_reason": generation.finish,
        "prefill_seconds": stats.prefill_seconds,
        "decode_seconds": stats.decode_seconds,
        "tokens_per_second": stats.tokens_per_second,
        "stages": stats.stage_seconds,
    }
    return json.dumps(record)


def as_block(generation: Generation, engine: Engine, *, model: str, draft: str | None) -> str:
    """A readable block of at most 80 columns."""
    stats = generation.stats
    drafted = draft or default_draft(model, engine.method)
    known = f" ({stats.kept_tokens} known from before)" if stats.kept_tokens else ""
    depths = " ".join(f"{share:.2f}" for share in stats.acceptance_by_depth)
    lines = [
        ("method", f"{engine.method.name}, model {model}" + (f", drafter {drafted}" if drafted else "")),
        ("device", f"{engine.parts.target.embedding.device}, {_dtype(engine)}"),
        (
            "tokens",
            f"{stats.tokens} after a prompt of {stats.prompt_tokens}{known}, ended by {generation.finish}",
        ),
        (
            "rounds",
            f"{stats.rounds} verification passes over {stats.verified_rows} rows{_plain(stats.plain_rounds)}",
        ),
        ("tokens per round", f"{stats.tokens_per_round:.2f} = {_DEFINITION}"),
        ("acceptance", f"{depths} {_ACCEPTANCE}" if depths else "nothing was drafted"),
        ("prefill", f"{stats.prefill_seconds:.3f} s"),
        ("decode", f"{stats.decode_seconds:.3f} s, {stats.tokens_per_second:.1f} tokens/s"),
        ("ms per round", _per_round(generation)),
    ]
    if engine.chosen is not None:
        lines.insert(1, ("chosen by auto", engine.chosen))
    return "\n".join(paragraph(label, text, indent=_LABEL, width=WIDTH) for label, text in lines)


def _plain(rounds: int) -> str:
    return f", {rounds} of them plain decoding" if rounds else ""


def _per_round(generation: Generation) -> str:
    stats = generation.stats
    if not stats.rounds:
        return "no round was needed"
    # what no stage is charged with: the transfer of the tokens, and the loop itself
    rest = max(0.0, stats.decode_seconds - sum(stats.stage_seconds.values()))
    stages = {**stats.stage_seconds, "rest": rest}
    shares = ", ".join(f"{stage} {1000 * seconds / stats.rounds:.2f}" for stage, seconds in stages.items())
    return f"{1000 * stats.decode_seconds / stats.rounds:.2f}: {shares}"


def _dtype(engine: Engine) -> str:
    return str(engine.parts.target.embedding.dtype).removeprefix("torch.")
