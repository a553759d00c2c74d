"""LiLiCorr's loss over the lattice of candidates (arXiv 2608.20530).

In: the scores of every slot's candidates behind the truth, and the target's logits of them. Out: one loss. A slot is
supervised while the truth has been among the candidates at every slot so far, and only in blocks that the text fills.
Letters: M blocks, K slots, C candidates.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from spectrain.objectives.weighting import weighted_mean


class LatticeWeights(NamedTuple):
    """Weights of the three terms beside the drafter's own loss, which has weight 1."""

    cross_entropy: float
    margin: float
    penalty: float


BASE_WEIGHTS = LatticeWeights(0.25, 0.0, 0.25)
MARGIN_WEIGHTS = LatticeWeights(0.125, 0.125, 0.25)
MARGIN = 2.0
"""How far the truth has to stand above the best other candidate."""


class LatticeTerms(NamedTuple):
    """The three terms, each a mean over the supervised slots."""

    cross_entropy: Tensor
    margin: Tensor  # of the hinge
    penalty: Tensor  # expected gap of the target's logits below the truth's

    def weighted(self, weights: LatticeWeights) -> Tensor:
        """Their weighted sum."""
        return (
            weights.cross_entropy * self.cross_entropy
            + weights.margin * self.margin
            + weights.penalty * self.penalty
        )


def supervised(present_MK: Tensor, trained_MK: Tensor) -> Tensor:
    """`[M, K]` bool: the slots that the terms are taken over."""
    return present_MK.cumprod(dim=1).bool() & trained_MK.all(dim=1, keepdim=True)


def lattice_terms(
    node_MKC: Tensor, choice_MK: Tensor, supervised_MK: Tensor, target_MKC: Tensor, margin: float = MARGIN
) -> LatticeTerms:
    """`node` are the scores behind the truth, up to a constant per slot; `target` are the target's logits."""
    weight_MK = supervised_MK.to(node_MKC.dtype)
    index_MK1 = choice_MK[..., None]
    log_q_MKC = node_MKC.log_softmax(dim=-1)
    truth_MK = node_MKC.gather(-1, index_MK1).squeeze(-1)
    rival_MK = node_MKC.scatter(-1, index_MK1, float("-inf")).amax(dim=-1)
    gap_MKC = F.relu(target_MKC.gather(-1, index_MK1) - target_MKC).detach()
    return LatticeTerms(
        weighted_mean(-log_q_MKC.gather(-1, index_MK1).squeeze(-1), weight_MK),
        weighted_mean(F.relu(margin - (truth_MK - rival_MK)), weight_MK),
        weighted_mean((log_q_MKC.exp() * gap_MKC).sum(dim=-1), weight_MK),
    )


@torch.no_grad()
def prefixes(node_MKC: Tensor, choice_MK: Tensor, supervised_MK: Tensor) -> tuple[Tensor, Tensor]:
    """Mean lengths of the prefix that the head would choose behind the truth, and of the one that it could have chosen."""
    right_MK = (node_MKC.argmax(dim=-1) == choice_MK) & supervised_MK
    chosen = right_MK.long().cumprod(dim=1).sum(dim=1).float().mean()
    return chosen, supervised_MK.sum(dim=1).float().mean()
