"""DSpark's loss: little cross entropy, much distance to the target, and a head that foretells acceptance (arXiv 2607.05147).

In: log-probabilities of the head and of the target along the truth, and the logits of acceptance. Out: one loss.
"""

from torch import Tensor
from torch.nn import functional as F

from spectrain.objectives.divergences import total_variation
from spectrain.objectives.weighting import weighted_mean

CROSS_ENTROPY = 0.1
"""The authors' share of the cross entropy; the distance has the rest.

The distance hardly pulls at tokens that the head finds improbable, so a head with few steps to go wants more of the other.
"""


def prediction_loss(
    log_q_MKV: Tensor,
    log_p_MKV: Tensor,
    label_MK: Tensor,
    weight_MK: Tensor,
    cross_entropy: float = CROSS_ENTROPY,
) -> Tensor:
    """A share of the cross entropy, and the rest of the full L1 distance, which is twice the total variation."""
    entropy_MK = -log_q_MKV.gather(-1, label_MK[..., None]).squeeze(-1)
    distance_MK = 2 * total_variation(log_q_MKV, log_p_MKV)
    return weighted_mean(cross_entropy * entropy_MK + (1 - cross_entropy) * distance_MK, weight_MK)


def confidence_loss(logit_MK: Tensor, log_q_MKV: Tensor, log_p_MKV: Tensor, weight_MK: Tensor) -> Tensor:
    """Binary cross entropy of the foretold acceptance with the true one, which gets no gradient from it."""
    truth_MK = (1 - total_variation(log_q_MKV, log_p_MKV)).detach().clamp(0, 1)
    entropy_MK = F.binary_cross_entropy_with_logits(logit_MK, truth_MK, reduction="none")
    return weighted_mean(entropy_MK, weight_MK)


def dspark_loss(
    log_q_MKV: Tensor, log_p_MKV: Tensor, label_MK: Tensor, confidence_MK: Tensor, weight_MK: Tensor
) -> Tensor:
    """All three terms."""
    return prediction_loss(log_q_MKV, log_p_MKV, label_MK, weight_MK) + confidence_loss(
        confidence_MK, log_q_MKV, log_p_MKV, weight_MK
    )
