"""DBLAST's accepted-length loss on text that the target wrote (arXiv 2608.05448; the exact form is ours).

In: log-probabilities of the text's tokens under the draft and under the law that wrote them. Out: minus the expected
length, as far as it can be told. E_{x from q} prod min(1, p/q) = E_{y from p} prod min(1, q/p), so the target's text serves.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from spectrain.objectives.weighting import weighted_mean

THRESHOLD = 0.1
"""A prefix whose mass has fallen below this teaches no more."""
LIKELIHOOD = 0.5
"""Weight of the plain likelihood beside the accepted length, which alone teaches nothing behind a wrong token."""


def accepted_length_loss(
    log_q_MK: Tensor, log_p_MK: Tensor, valid_MK: Tensor, threshold: float = THRESHOLD
) -> Tensor:
    """Minus the mean over blocks of the sum of A_k = prod_{i <= k} min(1, q_i / p_i) over the retained k.

    k is retained while A_{k-1} is at least the threshold, so the first always is. `valid` is a prefix of the slots.
    """
    log_ratio_MK = (log_q_MK - log_p_MK).clamp(max=0.0).masked_fill(~valid_MK, 0.0)
    mass_MK = log_ratio_MK.cumsum(dim=1).exp()
    before_MK = torch.cat([torch.ones_like(mass_MK[:, :1]), mass_MK[:, :-1]], dim=1).detach()
    retained_MK = valid_MK & (before_MK >= threshold)
    blocks = valid_MK[:, 0].sum().clamp_min(1)
    return -(mass_MK * retained_MK).sum() / blocks


class DblastTerms(NamedTuple):
    """Both terms."""

    length: Tensor  # minus the accepted length
    nll: Tensor  # weighted mean of minus the text's log-probability

    def mixed(self, likelihood: float = LIKELIHOOD) -> Tensor:
        """Their sum."""
        return self.length + likelihood * self.nll


def dblast_terms(log_q_MK: Tensor, log_p_MK: Tensor, valid_MK: Tensor, weight_MK: Tensor) -> DblastTerms:
    """The accepted length and the likelihood of the same text."""
    return DblastTerms(
        accepted_length_loss(log_q_MK, log_p_MK, valid_MK), weighted_mean(-log_q_MK, weight_MK)
    )
