"""DFlash 2's selector: a cross entropy over few candidates beside the drafter's own (z-lab/dflash publishes no training).

In: cross entropies of both along the truth; the truth is among the candidates because it was put there. Out: one loss.
"""

from torch import Tensor

from spectrain.objectives.weighting import weighted_mean


def selector_loss(
    selector_nll_MK: Tensor, base_nll_MK: Tensor, weight_MK: Tensor, share: float = 1.0
) -> Tensor:
    """The drafter's weighted cross entropy and `share` times the selector's, with the same weights."""
    return weighted_mean(base_nll_MK + share * selector_nll_MK, weight_MK)
