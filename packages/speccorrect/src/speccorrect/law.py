"""The target's law: one function from logits to what may be drawn, for plain decoding and for verification alike.

Penalties act on the raw logits, then temperature, then top-k, top-p and min-p, each on what the ones before left.
Every setting is a tensor per batch row, so a captured graph serves any request; what costs time is switched by
`LawPlan`, which is fixed when the graph is captured.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from speccorrect.noise import gumbel


@dataclass(frozen=True, slots=True, kw_only=True)
class LawSettings:
    """Sampling settings of every batch row."""

    temperature_B: Tensor  # fp32, 0 is greedy
    top_k_B: Tensor  # int64, 0 keeps all
    top_p_B: Tensor  # fp32 in (0, 1], 1 keeps all
    min_p_B: Tensor  # fp32 in [0, 1], 0 keeps all
    repetition_B: Tensor  # fp32 > 0, 1 is off
    presence_B: Tensor  # fp32, 0 is off
    frequency_B: Tensor  # fp32, 0 is off


@dataclass(frozen=True, slots=True, kw_only=True)
class LawPlan:
    """Which parts of the law are computed at all."""

    filters: bool  # any row uses top-k, top-p or min-p
    penalties: bool  # any row uses a penalty
    noise: bool  # any row has a temperature above 0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Token counts behind every verified row, for penalties."""

    prompt_BV: Tensor  # bool: occurs in the prompt
    output_BNV: Tensor  # counts in the output up to and including the row's own token


def shape_logits(
    logits_BNV: Tensor, settings: LawSettings, plan: LawPlan, history: History | None = None
) -> Tensor:
    """Penalised logits in at least fp32 with -inf where a filter removed the token. Still at temperature 1.

    Drawing adds T times noise to them; `probabilities` divides by T. The most probable token always survives.
    """
    shaped = logits_BNV if logits_BNV.dtype == torch.float64 else logits_BNV.float()
    if plan.penalties:
        assert history is not None, "penalties need the history of the rows"
        shaped = _penalise(shaped, settings, history)
    return _filter(shaped, settings) if plan.filters else shaped


def draw(shaped_BNC: Tensor, temperature_B: Tensor, key_BN: Tensor, ids: Tensor) -> Tensor:
    """The keyed draw argmax(shaped + T * G) along the last axis; `ids` are the token ids of that axis."""
    noise = gumbel(key_BN[..., None], ids).to(shaped_BNC.dtype)
    scale = temperature_B.to(shaped_BNC.dtype)[:, None, None]
    return (shaped_BNC + scale * noise).argmax(dim=-1)


def probabilities(shaped: Tensor, temperature_B: Tensor) -> Tensor:
    """softmax(shaped / T) along the last axis, batch first; one-hot where T is 0."""
    shape = (-1,) + (1,) * (shaped.ndim - 1)
    temperature = temperature_B.to(shaped.dtype).view(shape)
    best = torch.zeros_like(shaped).scatter_(-1, shaped.argmax(dim=-1, keepdim=True), 1.0)
    soft = torch.softmax(shaped / torch.where(temperature > 0, temperature, 1.0), dim=-1)
    return torch.where(temperature > 0, soft, best)


def _penalise(logits: Tensor, settings: LawSettings, history: History) -> Tensor:
    def per_row(value_B: Tensor) -> Tensor:
        return value_B.to(logits.dtype)[:, None, None]

    counts = history.output_BNV.to(logits.dtype)
    seen = history.prompt_BV[:, None] | (history.output_BNV > 0)
    repetition = per_row(settings.repetition_B)
    repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(seen, repeated, logits)
    return logits - per_row(settings.frequency_B) * counts - per_row(settings.presence_B) * (counts > 0)


def _filter(logits: Tensor, settings: LawSettings) -> Tensor:
    """Every filter becomes a threshold, so that equal logits share one fate whatever order a sort gives them."""
    temperature = settings.temperature_B.to(logits.dtype)[:, None, None]
    scaled = logits / torch.where(temperature > 0, temperature, 1.0)
    ordered = scaled.sort(dim=-1, descending=True).values
    rank = torch.arange(ordered.shape[-1], device=ordered.device)
    top_k = settings.top_k_B[:, None, None]
    kept = (rank < top_k) | (top_k == 0)
    weights = torch.softmax(ordered.masked_fill(~kept, float("-inf")), dim=-1)
    top_p = settings.top_p_B.to(logits.dtype)[:, None, None]
    # a token stays while the mass before it is below top_p, so the first always does; at top_p = 1 a sum that rounding
    # has brought to 1 early must cut nothing
    kept = kept & ((weights.cumsum(dim=-1) - weights < top_p) | (top_p >= 1))
    last = ordered.gather(-1, kept.sum(dim=-1, keepdim=True) - 1)
    floor = ordered[..., :1] + torch.log(settings.min_p_B.to(logits.dtype))[:, None, None]
    return logits.masked_fill(scaled < torch.maximum(last, floor), float("-inf"))
