"""D-PACE: every slot weighs what it adds to the expected accepted length (arXiv 2605.18810).

In: cross entropies of a block's slots. Out: weights that are the gradient of S = sum_k prod_{i <= k} q_i by log q_j, and
the loss with them. Letters: M blocks, K slots.
"""

from typing import Literal

import torch
from torch import Tensor

ALPHA = 0.5
Normalisation = Literal["slots", "weights", "sequences"]
"""Divide by the trained slots, by the sum of the weights, or by the number of sequences.

The first is ours: blocks that can become long keep their larger weight, and the size depends on neither the number of
anchors nor the block's length. The second forgets that weight, the third is the authors' and grows with the anchors.
"""


@torch.no_grad()
def dpace_weights(nll_MK: Tensor, valid_MK: Tensor, alpha: float = ALPHA) -> Tensor:
    """Weights `[M, K]` of the slots; invalid ones have none and change no other.

    The confidence is smoothed to (1 - alpha) q + alpha. At alpha 0 an untrained drafter's weights all vanish; at 1 they
    are the number of slots from this one on.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha: got {alpha}, expected 0 to 1; 0.5 is the authors'")
    smooth_MK = torch.where(valid_MK, (1 - alpha) * (-nll_MK).exp() + alpha, 1.0)
    reach_MK = smooth_MK.cumprod(dim=1) * valid_MK
    return reach_MK.flip(1).cumsum(dim=1).flip(1) * valid_MK


def dpace_loss(
    nll_MK: Tensor,
    valid_MK: Tensor,
    *,
    alpha: float = ALPHA,
    normalisation: Normalisation = "slots",
    sequences: int | None = None,
) -> Tensor:
    """Cross entropies under these weights; `sequences` is needed for the normalisation of that name."""
    weight_MK = dpace_weights(nll_MK, valid_MK, alpha)
    total = (nll_MK.masked_fill(~valid_MK, 0.0) * weight_MK).sum()
    if normalisation == "sequences":
        if sequences is None:
            raise ValueError(
                "sequences: got none, expected the batch's number of them for this normalisation"
            )
        return total / sequences
    return total / (weight_MK if normalisation == "weights" else valid_MK).sum().clamp_min(1e-6)


def expected_length(nll_MK: Tensor, valid_MK: Tensor) -> Tensor:
    """The surrogate: sum over blocks of S, if slots were accepted with the truth's probability, each by itself."""
    log_q_MK = (-nll_MK).masked_fill(~valid_MK, 0.0)
    return (log_q_MK.cumsum(dim=1).exp() * valid_MK).sum()
