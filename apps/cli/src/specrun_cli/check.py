"""`specrun check`: is every method lossless here, with this model on this machine? A table out, and an exit code.

Ids are compared with plain decoding under one seed. Where they differ, the margin of the choice says whether it was a tie
that rounding settled. Chains under the rule *reject*, whose ids are others, are held against the target's law.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from specrun import Engine, Method, Sampling, Stats, method, methods
from specrun.catalogue import catalogue
from specrun.compare import Parting, parting, places_in_law, rounding, uniform_p_value
from specrun_cli.columns import paragraph, table
from specrun_cli.opening import MODEL, announce, enough_memory, open_engine, prompt_ids, refuse_denoisers
from specrun_cli.prompt import read_prompts

TOKENS = 64
DRAWS = 256
SMALLEST = 32  # draws below which the test of the law says nothing
TEMPERATURE = 1.0
IMPROBABLE = 1e-6
"""A p-value below this is no accident: one right method in a million is accused."""
TIE = 4
"""Ties are won by at most this many times what rounding was seen to move a logit by."""
ROWS = 32  # of a batch of draws
DEPTH = 3  # tokens of an answer that are held against the law
PROMPTS = (
    "Write a Python function that counts the vowels of a text.",
    "A baker sells 12 loaves in the morning and 15 in the afternoon. How many are that in five days?",
    "Tell a short story about a lighthouse and a storm.",
    "Explain in three sentences why the sky is blue.",
    "List five rivers, one a line.",
    "def fibonacci(n):",
    "Translate into French: The cat sleeps on the roof.",
    "What is 17 times 23? Show the steps.",
)
WRONG = 1  # exit code


@dataclass(slots=True, kw_only=True)
class Finding:
    """What was seen of one method."""

    method: str
    partings: dict[str, list[tuple[int, Parting]]] = field(default_factory=dict)  # by law: (prompt, parting)
    stats: Stats = field(default_factory=Stats)  # of all answers
    p_value: float | None = None  # of the law test

    def is_wrong(self, tie: float) -> bool:
        """Whether something differs that rounding does not explain."""
        improbable = self.p_value is not None and self.p_value < IMPROBABLE
        return improbable or any(one.margin > tie for found in self.partings.values() for _, one in found)


def run(given: Mapping[str, Any]) -> int:
    """Compare all methods, print, and say in the exit code whether all is well."""
    with enough_memory():
        return _run(given)


def _run(given: Mapping[str, Any]) -> int:
    greedy, sampled, draws = _laws(given)
    texts = read_prompts(Path(given["prompts"])) if "prompts" in given else PROMPTS
    chosen = _methods(given)
    common = {name: value for name, value in given.items() if name != "draft"}
    plain = open_engine({**common, "method": "ar"}, greedy)
    prompts = [prompt_ids(plain, text, given) for text in texts]
    for ids in prompts:
        plain.check(ids, greedy)
    announce(given.get("model", MODEL))
    tie = TIE * rounding(plain, prompts[0], tokens=greedy.max_new_tokens)
    laws = {"greedy": greedy, f"temperature {sampled.temperature:g}": sampled}
    expected = {name: _answers(plain, prompts, law)[0] for name, law in laws.items()}
    findings = [Finding(method="ar", p_value=_law(plain, plain, prompts[0], sampled, draws))]
    for item in tqdm(chosen, desc="methods", disable=None):
        found = Finding(method=item.name)
        engine = open_engine({**given, "method": item.name}, greedy, beside=plain)
        for name, law in laws.items():
            answers, stats = _answers(engine, prompts, law)
            pairs = zip(prompts, expected[name], answers, strict=True)
            seen = [parting(plain, ids, ours, theirs, law) for ids, ours, theirs in pairs]
            found.partings[name] = [(number, one) for number, one in enumerate(seen, 1) if one is not None]
            found.stats.add(stats)
        if item.growth == "chain":
            rejecting = open_engine({**given, "method": item.name, "accept": "reject"}, sampled, beside=plain)
            found.p_value = _law(rejecting, plain, prompts[0], sampled, draws)
        findings.append(found)
    wrong = [found.method for found in findings if found.is_wrong(tie)]
    if "json" in given:
        print(json.dumps({"lossless": not wrong, "tie": tie, "methods": list(map(_record, findings))}))
    else:
        _print(findings, plain, list(laws), len(prompts), tie)
        print(f"\nNot lossless: {', '.join(wrong)}." if wrong else "\nLossless.")
    return WRONG if wrong else 0


def _laws(given: Mapping[str, Any]) -> tuple[Sampling, Sampling, int]:
    """Greedy, sampled, and how many draws are held against the law."""
    tokens, draws = given.get("max_new_tokens", TOKENS), given.get("draws", DRAWS)
    if tokens < 2:
        raise ValueError(
            f"max new tokens: got {tokens}, expected at least 2: the first one is nobody's draft"
        )
    if draws != 0 and draws < SMALLEST:
        raise ValueError(
            f"draws: got {draws}, expected at least {SMALLEST}, or 0 to leave out the test of the law"
        )
    temperature = given.get("temperature", TEMPERATURE)
    if temperature == 0:
        raise ValueError("temperature: got 0, expected above 0: greedy decoding is compared anyway")
    greedy = Sampling(max_new_tokens=tokens)
    return greedy, replace(greedy, temperature=temperature, seed=given.get("seed", 0)), draws


def _methods(given: Mapping[str, Any]) -> list[Method]:
    """The named ones, or those whose drafter is on this disk."""
    model = given.get("model", MODEL)
    refuse_denoisers(model)
    if "methods" in given:
        return [method(name) for name in given["methods"].split(",") if name != "ar"]
    if "draft" in given:
        raise ValueError("methods: got none, expected those that --draft belongs to; add --methods")
    here = {
        head
        for one in catalogue()
        if one.name == model
        for head, offer in one.drafters.items()
        if offer.folder
    }
    found = [item for item in methods().values() if item.corrector in here]
    if not found:
        raise ValueError(
            f"methods: no drafter of {model} is on this disk; name some with --methods, or one with --draft"
        )
    return found


def _answers(engine: Engine, prompts: list[list[int]], law: Sampling) -> tuple[list[list[int]], Stats]:
    """Ids of all prompts, each decoded by itself as the only request, and the sum of their counters."""
    total, answers = Stats(), []
    for ids in prompts:
        answer = engine.generate(ids, law)
        answers.append(answer.token_ids)
        total.add(answer.stats)
    return answers, total


def _law(engine: Engine, plain: Engine, prompt: list[int], law: Sampling, draws: int) -> float | None:
    """The p-value of the first tokens of many answers to one prompt, all tokens together."""
    short = replace(law, max_new_tokens=DEPTH, stop_ids=())
    answers = [answer.token_ids for answer in engine.generate_batch([prompt] * draws, short, batch_size=ROWS)]
    if not answers:
        return None
    starts = range(0, draws, ROWS)
    places = [places_in_law(plain, prompt, answers[at : at + ROWS], law.temperature) for at in starts]
    return uniform_p_value(torch.cat(places))


def _print(findings: list[Finding], plain: Engine, laws: list[str], count: int, tie: float) -> None:
    rows = [
        (
            found.method,
            *(_cell(found, law, count, tie) for law in laws),
            f"{found.stats.tokens_per_round:.2f}" if found.stats.rounds else "-",
            "-" if found.p_value is None else f"p = {found.p_value:.2g}",
        )
        for found in findings
    ]
    print(table(("METHOD", *(law.upper() for law in laws), "TOKENS/ROUND", "LAW"), rows))
    target = plain.parts.target
    text = (
        f"Answers equal to plain decoding under one seed, of {count}, in {target.embedding.dtype}".replace(
            "torch.", ""
        )
        + f" on {target.embedding.device}. A tie is won by at most {tie:.1g}, {TIE} times what rounding moves a logit by"
        " between a pass over one row and one over many. Law: a chi-square test of the first tokens, for plain decoding"
        f" and for chains under --accept reject; below {IMPROBABLE:g} it fails."
    )
    print(paragraph("", text, indent=0))
    for found in findings:
        for law, partings in found.partings.items():
            for number, one in partings:
                print(paragraph("", f"{found.method}, {law}, {_story(number, one, plain, tie)}", indent=0))


def _record(found: Finding) -> dict[str, Any]:
    """As JSON, which has no infinity: the margin is null where one of the answers had ended."""
    partings = {
        law: [
            asdict(one) | {"prompt": number, "margin": one.margin if math.isfinite(one.margin) else None}
            for number, one in seen
        ]
        for law, seen in found.partings.items()
    }
    rate = found.stats.tokens_per_round
    return {"method": found.method, "partings": partings, "tokens_per_round": rate, "p_value": found.p_value}


def _cell(found: Finding, law: str, count: int, tie: float) -> str:
    if law not in found.partings:
        return "the reference"
    partings = found.partings[law]
    ties = sum(one.margin <= tie for _, one in partings)
    notes = [f"{count - len(partings)}"]
    notes += [f"{ties} tied"] if ties else []
    notes += [f"{len(partings) - ties} OTHER"] if len(partings) > ties else []
    return ", ".join(notes)


def _story(number: int, one: Parting, plain: Engine, tie: float) -> str:
    assert plain.tokenizer is not None, "opened from a folder"
    names = [
        "the end" if token is None else repr(plain.tokenizer.spelling(token))
        for token in (one.expected, one.got)
    ]
    kind = "a tie" if one.margin <= tie else "no tie"
    return (
        f"prompt {number}, token {one.place + 1}: {names[1]} for {names[0]}, margin {one.margin:.2g}, {kind}"
    )
