"""The convolution of DFlash 2: each row of a block is mixed with the rows right before it, with weights that it chooses.

In: normed rows of one or several blocks. Out: rows of the same shape. Nothing crosses from one block into the next.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specmodels.layers.linear import Linear


class BlockConv(nn.Module):
    """A causal convolution over block slots, before and after a sublayer.

    The kernel is a learned base per channel plus a part per group of channels that the row itself determines; both
    sides take theirs from the row that enters the sublayer.
    """

    def __init__(self, width: int, *, taps: int, group: int) -> None:
        super().__init__()
        self.taps, self.group = taps, group
        self.base_kernel = nn.Parameter(torch.empty(2, taps, width))
        self.projection = Linear(width, 2 * taps * (width // group))

    @torch.no_grad()
    def set_identity(self) -> None:
        """Weights with which the drafter is plain DFlash, bit for bit."""
        self.base_kernel.zero_()
        self.base_kernel[:, 0] = 1.0
        self.projection.weight.zero_()

    def kernels(self, x_BQD: Tensor) -> tuple[Tensor, Tensor]:
        """Kernels `[B, Q, taps, D]` before and after the sublayer, from its normed input."""
        groups = x_BQD.shape[-1] // self.group
        chosen = self.projection(x_BQD).unflatten(-1, (2, self.taps, groups))
        before, after = (chosen.repeat_interleave(self.group, dim=-1) + self.base_kernel).unbind(dim=2)
        return before, after


def convolve(kernel_BQSD: Tensor, x_BQD: Tensor, block_rows: int) -> Tensor:
    """Sum of every row and its predecessors in the block, each times its tap; before slot 0 there is nothing."""
    x_BNQD = x_BQD.unflatten(1, (-1, block_rows))
    kernel_BNQSD = kernel_BQSD.unflatten(1, (-1, block_rows))
    out_BNQD = kernel_BNQSD[..., 0, :] * x_BNQD
    for tap in range(1, kernel_BNQSD.shape[3]):
        earlier_BNQD = F.pad(x_BNQD, (0, 0, tap, 0))[:, :, :block_rows]
        out_BNQD = out_BNQD + kernel_BNQSD[..., tap, :] * earlier_BNQD
    return out_BNQD.flatten(1, 2)


def convolve_naive(kernel_BQSD: Tensor, x_BQD: Tensor, block_rows: int) -> Tensor:
    """The same from its definition, one row at a time; the oracle of `convolve`."""
    rows = []
    for row in range(x_BQD.shape[1]):
        slot = row % block_rows
        taps = range(min(kernel_BQSD.shape[2], slot + 1))
        rows.append(torch.stack([kernel_BQSD[:, row, tap] * x_BQD[:, row - tap] for tap in taps]).sum(dim=0))
    return torch.stack(rows, dim=1)
