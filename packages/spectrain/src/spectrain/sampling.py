"""Prompts go in, a target's own responses come out, many rows at once: data to train drafters on.

Plain decoding, one token a step; it shares no code with the engine whose drafters it makes data for.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specmodels.kv import CacheMemory, StaticKV
from specmodels.qwen3 import Qwen3


class Request(NamedTuple):
    """One prompt and how to continue it."""

    prompt: list[int]
    temperature: float  # 0 takes the best token


@torch.inference_mode()
def sample_responses(
    model: Qwen3, requests: Sequence[Request], *, end: int, longest: int, generator: torch.Generator
) -> list[list[int]]:
    """Responses up to and with the `end` token, or `longest` tokens of them.

    Prompts of about one length make the best batches: every row is filled up to the longest.
    """
    responses: list[list[int]] = [[] for _ in requests]
    length_B = torch.tensor([len(request.prompt) for request in requests])
    temperature_B = torch.tensor([request.temperature for request in requests])
    rows = int(length_B.max())
    kv = model.new_kv(batch=len(requests), capacity=rows + longest)
    token_BQ = torch.zeros(len(requests), rows, dtype=torch.int64)
    for row, request in enumerate(requests):
        token_BQ[row, : len(request.prompt)] = torch.tensor(request.prompt)
    hidden_BQD = _forward(model, kv, token_BQ, torch.arange(rows).expand(len(requests), rows))
    # what a short prompt's row holds beyond it is never seen: every step overwrites the next slot before it looks
    token_B = _choose(model, hidden_BQD[torch.arange(len(requests)), length_B - 1], temperature_B, generator)
    alive = torch.arange(len(requests))
    going_B = torch.ones(len(requests), dtype=torch.bool)
    for _ in range(longest):
        for row, token, going in zip(alive.tolist(), token_B.tolist(), going_B.tolist(), strict=True):
            if going:
                responses[row].append(token)
        going_B = going_B & (token_B != end)
        keep = going_B.nonzero()[:, 0]
        if keep.numel() == 0:
            break
        # a finished row costs a row's work on every step, dropping it a copy of the whole cache
        if keep.numel() < 0.85 * alive.numel():
            alive, token_B, length_B, temperature_B, going_B = (
                state_B[keep] for state_B in (alive, token_B, length_B, temperature_B, going_B)
            )
            kv = _select(model, kv, keep)
        hidden_BQD = _forward(model, kv, token_B[:, None], length_B[:, None])
        token_B = _choose(model, hidden_BQD[:, 0], temperature_B, generator)
        length_B = length_B + 1
    return responses


def _forward(model: Qwen3, kv: StaticKV, token_BQ: Tensor, position_BQ: Tensor) -> Tensor:
    """Final hidden rows; cache slots are positions."""
    span = int(position_BQ.max()) + 1
    mask_BQT = torch.arange(span) <= position_BQ[:, :, None]
    return model(token_BQ, position_BQ, CacheMemory(kv, position_BQ, mask_BQT)).hidden_BQD


def _choose(model: Qwen3, hidden_BD: Tensor, temperature_B: Tensor, generator: torch.Generator) -> Tensor:
    """The best token of every greedy row; for the others a draw from the softmax, by inverting its running sum."""
    logits_BV = model.logits(hidden_BD).float()
    token_B = logits_BV.argmax(dim=-1)
    drawn = (temperature_B > 0).nonzero()[:, 0]
    if drawn.numel() > 0:
        probability_BV = (logits_BV[drawn] / temperature_B[drawn, None]).softmax(dim=-1)
        running_BV = probability_BV.cumsum(dim=-1)
        # below the last sum, which rounding may leave under one
        level_BK = torch.rand(drawn.numel(), 1, generator=generator) * running_BV[:, -1:]
        found_BK = torch.searchsorted(running_BV, level_BK, right=True)
        token_B[drawn] = found_BK[:, 0].clamp_max(logits_BV.shape[-1] - 1)
    return token_B


def _select(model: Qwen3, kv: StaticKV, keep: Tensor) -> StaticKV:
    """The cache of some rows."""
    smaller = model.new_kv(batch=keep.numel(), capacity=kv.capacity)
    smaller.key_LBGTH.copy_(kv.key_LBGTH[:, keep])
    smaller.value_LBGTH.copy_(kv.value_LBGTH[:, keep])
    return smaller
