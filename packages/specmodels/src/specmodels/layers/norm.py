"""RMSNorm as Qwen3 and Llama define it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    """Scale the last axis to unit mean square, then by a learned weight.

    The statistics are taken in at least fp32 and the result is cast back before the weight is applied: the order
    that the published weights were trained with.
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype in (torch.float32, torch.float64):
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        return unit_rms(x, self.eps) * self.weight


def unit_rms(x: Tensor, eps: float) -> Tensor:
    """RMSNorm without its weight: statistics in at least fp32, the result in the dtype of `x`."""
    return F.rms_norm(x, x.shape[-1:], None, eps)
