"""Plain decoding from its definitions: no cache, no batch, every token from a full pass over everything before it.

Knows nothing of the engine. The law and the noise are written in Python numbers; only the network itself is shared,
and that is compared with public implementations elsewhere.
"""

import math
from collections import Counter
from dataclasses import dataclass

import torch

from specmodels.kv import RowsMemory

WORD = 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """New tokens, and by how much each one won over the next best: below rounding, another one may win elsewhere."""

    tokens: list[int]
    margins: list[float]


@torch.no_grad()
def continuation(target, prompt, sampling, *, request=0, length) -> Continuation:
    """The `length` tokens that `target` puts behind `prompt`; stop ids and the budget are left to `cut`."""
    tokens, margins = list(prompt), []
    while len(tokens) < len(prompt) + length:
        scores = penalised(next_logits(target, tokens), prompt, tokens[len(prompt) :], sampling)
        kept = survivors(scores, sampling)
        temperature = single(sampling.temperature)
        if temperature > 0:
            key = noise_key(sampling.seed, request, len(tokens))
            scores = [score + temperature * gumbel(key, token) for token, score in enumerate(scores)]
        best, second = ranked(scores, kept)
        tokens.append(best)
        margins.append(scores[best] - (scores[second] if second is not None else -math.inf))
    return Continuation(tokens=tokens[len(prompt) :], margins=margins)


def cut(tokens, max_new_tokens, stop_ids=()) -> tuple[list[int], str]:
    """What is kept of a continuation, and why it ends there. A stop id that fills the budget is a stop."""
    for count, token in enumerate(tokens[:max_new_tokens], start=1):
        if token in stop_ids:
            return tokens[:count], "stop"
    assert len(tokens) >= max_new_tokens, "the continuation is too short to be cut there"
    return tokens[:max_new_tokens], "length"


@torch.no_grad()
def next_law(target, prompt, output, sampling) -> list[float]:
    """Probabilities of the next token behind `prompt + output`."""
    scores = penalised(next_logits(target, [*prompt, *output]), prompt, output, sampling)
    kept, temperature = survivors(scores, sampling), single(sampling.temperature)
    top = max(scores)
    weights = [
        math.exp((score - top) / temperature) if token in kept else 0.0 for token, score in enumerate(scores)
    ]
    return [weight / sum(weights) for weight in weights]


def joint_law(target, prompt, output, sampling, count) -> dict[tuple[int, ...], float]:
    """Probabilities of all possible next `count` tokens."""
    if count == 0:
        return {(): 1.0}
    joint = {}
    for token, probability in enumerate(next_law(target, prompt, output, sampling)):
        if probability > 0:
            rest = joint_law(target, prompt, [*output, token], sampling, count - 1)
            joint.update({(token, *tail): probability * share for tail, share in rest.items()})
    return joint


def next_logits(target, tokens) -> list[float]:
    positions = torch.arange(len(tokens), device=target.embedding.device)[None]
    row = torch.tensor([tokens], device=target.embedding.device)
    return target.logits(target(row, positions, RowsMemory()).hidden_BQD[0, -1]).double().tolist()


def penalised(logits, prompt, output, sampling) -> list[float]:
    counts, seen = Counter(output), {*prompt, *output}
    repetition = single(sampling.repetition_penalty)
    frequency, presence = single(sampling.frequency_penalty), single(sampling.presence_penalty)
    scores = []
    for token, score in enumerate(logits):
        if token in seen:
            score = score / repetition if score > 0 else score * repetition
        scores.append(score - frequency * counts[token] - (presence if counts[token] else 0.0))
    return scores


def survivors(scores, sampling) -> set[int]:
    """Tokens that top-k, then top-p, then min-p leave."""
    temperature = single(sampling.temperature) or 1.0
    scaled = [score / temperature for score in scores]
    order = sorted(range(len(scores)), key=lambda token: -scaled[token])
    if sampling.top_k:
        order = order[: sampling.top_k]
    if sampling.top_p < 1:
        weights = [math.exp(scaled[token] - scaled[order[0]]) for token in order]
        mass, count = 0.0, 0
        while mass < single(sampling.top_p) * sum(weights):
            mass, count = mass + weights[count], count + 1
        order = order[:count]
    if sampling.min_p:
        share = single(sampling.min_p)
        order = [token for token in order if math.exp(scaled[token] - scaled[order[0]]) >= share]
    return set(order)


def ranked(scores, kept) -> tuple[int, int | None]:
    order = sorted(kept, key=lambda token: (-scores[token], token))
    return order[0], order[1] if len(order) > 1 else None


def gumbel(key, token) -> float:
    low, high = key
    word = mix(mix((token * 0x9E3779B9 + low) & WORD) ^ high)
    return -math.log(-math.log((word + 0.5) / 2**32))


def noise_key(seed, request, position) -> tuple[int, int]:
    low_seed, high_seed = seed & WORD, (seed >> 32) & WORD
    return (
        fold(0x243F6A88, low_seed, high_seed, request, position),
        fold(0x85A308D3, position, request, high_seed, low_seed),
    )


def fold(state, *words) -> int:
    for word in words:
        state = mix((state * 0x01000193 + word) & WORD)
    return state


def mix(word) -> int:
    word ^= word >> 16
    word = word * 0x21F0AAAD & WORD
    word ^= word >> 15
    word = word * 0xD35A2D97 & WORD
    return word ^ word >> 15


def single(value) -> float:
    """A setting as single precision holds it, which is how a request's settings are kept."""
    return torch.tensor(value, dtype=torch.float32).item()
