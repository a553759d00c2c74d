"""DeLS-Spec: the local model learns text alone, and two numbers say how much of it to mix in (arXiv 2607.07409).

In: logits of the local model and of a drafter, and the truth. Out: the loss of the first, and the two numbers.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from spectrain.objectives.weighting import weighted_mean


def local_loss(local_MKV: Tensor, label_MK: Tensor, known_MK: Tensor) -> Tensor:
    """Mean next-token cross entropy of the slots that know a drafted token; no drafter and no target takes part."""
    entropy_MK = F.cross_entropy(local_MKV.transpose(1, 2), label_MK, reduction="none")
    return weighted_mean(entropy_MK, known_MK.to(entropy_MK.dtype))


class Fusion(NamedTuple):
    """Weights of the local model's logits and of the unigram's logarithm."""

    alpha: float
    beta: float


@torch.no_grad()
def fit_fusion(
    base_NV: Tensor, local_NV: Tensor, unigram_V: Tensor, label_N: Tensor, iterations: int = 12
) -> Fusion:
    """The weights that make base + alpha x local - beta x unigram likeliest, by Newton's method in fp64.

    The loss is convex in both, so there is one answer, whatever the start.
    """
    base_NV, local_NV, unigram_V = base_NV.double(), local_NV.double(), unigram_V.double()
    weight_2 = base_NV.new_zeros(2)

    def mean(value_NV: Tensor, q_NV: Tensor) -> Tensor:
        return (q_NV * value_NV).sum(dim=-1)

    local_N = local_NV.gather(-1, label_N[:, None]).squeeze(-1)
    for _ in range(iterations):
        q_NV = (base_NV + weight_2[0] * local_NV - weight_2[1] * unigram_V).softmax(dim=-1)
        first_N, second_N = mean(local_NV, q_NV), -mean(unigram_V.expand_as(q_NV), q_NV)
        gradient_2 = torch.stack([(first_N - local_N).mean(), (second_N + unigram_V[label_N]).mean()])
        # covariance of the two features under q
        cross = (-mean(local_NV * unigram_V, q_NV) - first_N * second_N).mean()
        own = (mean(local_NV.square(), q_NV) - first_N.square()).mean()
        other = (mean(unigram_V.square().expand_as(q_NV), q_NV) - second_N.square()).mean()
        hessian_22 = torch.stack([torch.stack([own, cross]), torch.stack([cross, other])])
        step_2 = torch.linalg.solve(hessian_22 + 1e-9 * torch.eye(2, dtype=torch.float64), gradient_2)
        # a long step may overshoot where the loss is nearly flat
        weight_2 = weight_2 - step_2.clamp(-1.0, 1.0)
    return Fusion(float(weight_2[0]), float(weight_2[1]))
