"""Hidden block rows and their labels go in, the drafter's loss comes out.

Letters: N block rows of a batch in one list, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def decay_weights(slot_BQ: Tensor, trained_BQ: Tensor, gamma: float) -> Tensor:
    """exp(-slot / gamma): a draft counts only if all before it were right, so early slots matter most."""
    return torch.exp(-slot_BQ.clamp_min(0).float() / gamma) * trained_BQ


def block_loss(
    hidden_ND: Tensor,
    label_N: Tensor,
    weight_N: Tensor,
    logits: Callable[[Tensor], Tensor],
    *,
    chunk: int | None = None,
) -> Tensor:
    """Weighted mean of the cross entropies, in fp32.

    With `chunk`, that many rows at a time, and their logits are computed again in the backward pass: memory for the
    logits is then bounded by one chunk. A large vocabulary needs it.
    """

    def total(hidden_ND: Tensor, label_N: Tensor, weight_N: Tensor) -> Tensor:
        entropy_N = F.cross_entropy(logits(hidden_ND).float(), label_N, reduction="none")
        return (entropy_N * weight_N).sum()

    if chunk is None:
        loss = total(hidden_ND, label_N, weight_N)
    else:
        pieces = zip(hidden_ND.split(chunk), label_N.split(chunk), weight_N.split(chunk), strict=True)
        sums = [checkpoint(total, *piece, use_reentrant=False) for piece in pieces]
        loss = torch.stack(sums).sum()
    # rows without any label to learn give zero, not a division by zero
    return loss / weight_N.sum().clamp_min(1e-6)


def accepted(right_NK: Tensor) -> Tensor:
    """Drafts of every block before the first wrong one, `[N]`."""
    return right_NK.long().cumprod(dim=1).sum(dim=1)
