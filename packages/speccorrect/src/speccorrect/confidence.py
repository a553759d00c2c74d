"""Calibration of a confidence head: logits and what happened go in, one temperature per depth comes out.

Sequential temperature scaling (DSpark, arXiv 2607.05147): from the first depth on, each gets the temperature with which
the product up to it agrees best with how often that many tokens were accepted; those before it stay as they are.

Letters: M blocks, K depths.
"""

import torch
from torch import Tensor

GRID = tuple(2 ** (step / 8) for step in range(-16, 25))
"""Temperatures that are tried, from 1/4 to 8."""


def calibration_error(predicted_M: Tensor, happened_M: Tensor, bins: int = 10) -> Tensor:
    """Expected calibration error: mean distance of prediction and frequency over bins of equal width, by their share."""
    place_M = (predicted_M * bins).long().clamp(0, bins - 1)
    zero = predicted_M.new_zeros(bins)
    gap = zero.scatter_add(0, place_M, predicted_M - happened_M.to(predicted_M.dtype))
    return gap.abs().sum() / max(1, predicted_M.shape[0])


def fit_temperatures(logit_MK: Tensor, accepted_M: Tensor, known_M: Tensor) -> Tensor:
    """Temperatures fp32 `[K]` from confidence logits along drafted chains.

    `accepted` counts the drafted tokens that the target took, `known` those whose fate is known: a block at the end of a
    text says nothing of the slots behind it.
    """
    depths = logit_MK.shape[1]
    reach_M = torch.ones_like(accepted_M, dtype=torch.float32)
    found = []
    for depth in range(depths):
        seen = known_M > depth
        happened = accepted_M[seen] > depth
        tried = [reach_M * torch.sigmoid(logit_MK[:, depth].float() / value) for value in GRID]
        errors = torch.stack([calibration_error(reach[seen], happened) for reach in tried])
        best = int(errors.argmin())
        found.append(GRID[best])
        reach_M = tried[best]
    return torch.tensor(found)
