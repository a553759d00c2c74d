"""AdaFlash's losses: a drafter that follows its target closely, and a head that foretells how far (arXiv 2607.19223).

In: log-probabilities of drafter (q) and target (p) at the same slots, or accepted lengths. Out: two terms and their mix, or
the loss of the head. Letters: M blocks, K slots.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from spectrain.objectives.divergences import reverse_kl
from spectrain.objectives.weighting import weighted_mean

HARD = 0.8
"""Share of the cross entropy with the target's best token; the divergence has the rest."""
CLIP = 10.0
"""Nats of a slot's own divergence beyond which it teaches nothing. The authors clip after a division by the batch's weight."""
LOOKAHEAD = 1
"""Rows that the head should ask for beyond the accepted ones: the anchor's."""


class AdaflashTerms(NamedTuple):
    """The two terms, and how many of the weighted slots were clipped."""

    hard: Tensor
    divergence: Tensor
    clipped: Tensor  # share of them, without a gradient

    def mixed(self, hard: float = HARD) -> Tensor:
        """Their mix."""
        return hard * self.hard + (1 - hard) * self.divergence


def adaflash_terms(
    log_q_MKV: Tensor, log_p_MKV: Tensor, weight_MK: Tensor, clip: float = CLIP
) -> AdaflashTerms:
    """Cross entropy with the target's best token, which need not be the text's, and the reverse divergence."""
    best_MK1 = log_p_MKV.argmax(dim=-1, keepdim=True)
    value_MK = reverse_kl(log_q_MKV, log_p_MKV)
    clipped_MK = value_MK > clip
    return AdaflashTerms(
        weighted_mean(-log_q_MKV.gather(-1, best_MK1).squeeze(-1), weight_MK),
        weighted_mean(value_MK.clamp(max=clip), weight_MK),
        weighted_mean(clipped_MK.to(weight_MK.dtype), weight_MK).detach(),
    )


def length_target(accepted_M: Tensor, rows: int) -> Tensor:
    """What the head should say of a block of so many rows: the share that was worth verifying, the anchor included."""
    return (accepted_M + LOOKAHEAD).clamp(0, rows).float() / rows


def length_loss(logit_M: Tensor, accepted_M: Tensor, valid_M: Tensor, rows: int) -> Tensor:
    """Mean squared error of the head's share, over the blocks whose accepted length is known."""
    error_M = F.mse_loss(torch.sigmoid(logit_M), length_target(accepted_M, rows), reduction="none")
    return weighted_mean(error_M, valid_M.to(error_M.dtype))
