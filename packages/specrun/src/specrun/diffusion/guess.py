"""Logits of some rows in, the model's guess at each of their tokens out, and how sure it is.

Letters: Q rows, V vocabulary.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from speccorrect.noise import gumbel, noise_key


class Guess(NamedTuple):
    """One token for every row."""

    token_Q: Tensor
    sure_Q: Tensor  # its probability
    log_held_Q: Tensor  # log-probability of the token that stands there


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How guesses are drawn: the noise hangs on seed and position alone, so the same row draws the same again."""

    temperature: float = 0.0
    seed: int = 0


def guess(logits_QV: Tensor, ids_Q: Tensor, start: int, mask_id: int, draw: Draw) -> Guess:
    """The best token of every row, or above temperature 0 a drawn one; never the mask, or a block would not end."""
    wide = torch.promote_types(logits_QV.dtype, torch.float32)
    logits_QV = logits_QV.to(wide, copy=True)
    logits_QV[:, mask_id] = float("-inf")
    log_QV = logits_QV.log_softmax(dim=-1)
    log_held_Q = log_QV.gather(-1, ids_Q[:, None]).squeeze(-1)
    if draw.temperature == 0:
        sure_Q, token_Q = log_QV.max(dim=-1)
        return Guess(token_Q, sure_Q.exp(), log_held_Q)
    device = ids_Q.device
    position_Q = torch.arange(start, start + len(ids_Q), device=device)
    seed, request = torch.tensor(draw.seed, device=device), torch.zeros((), dtype=torch.int64, device=device)
    key_Q = noise_key(seed, request, position_Q)
    vocabulary_V = torch.arange(log_QV.shape[-1], device=device)
    tempered_QV = (log_QV / draw.temperature).log_softmax(dim=-1)
    token_Q = (tempered_QV + gumbel(key_Q[:, None], vocabulary_V)).argmax(dim=-1)
    return Guess(token_Q, tempered_QV.gather(-1, token_Q[:, None]).squeeze(-1).exp(), log_held_Q)
