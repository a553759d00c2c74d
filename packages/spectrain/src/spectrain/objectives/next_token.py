"""Hidden rows of a packed batch go in, the cross entropy of every document's next token comes out."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class NextTokens(NamedTuple):
    """What every row should predict."""

    label_BS: Tensor  # int64; any valid id where the weight is zero
    weight_BS: Tensor  # float


def next_tokens(token_BS: Tensor, document_BS: Tensor) -> NextTokens:
    """Labels by one place to the left; the last token of a document, and padding, have weight zero."""
    label_BS = token_BS.roll(-1, dims=1)
    inside = (document_BS == document_BS.roll(-1, dims=1)) & (document_BS >= 0)
    inside[:, -1] = False
    return NextTokens(label_BS, inside.float())


def next_token_loss(logits_BSV: Tensor, label_BS: Tensor, weight_BS: Tensor) -> Tensor:
    """Weighted mean of the cross entropies, in fp32 whatever the logits' dtype."""
    entropy_N = F.cross_entropy(logits_BSV.flatten(0, 1).float(), label_BS.flatten(), reduction="none")
    return (entropy_N * weight_BS.flatten()).sum() / weight_BS.sum().clamp_min(1.0)


@torch.no_grad()
def token_losses(logits_BSV: Tensor, label_BS: Tensor) -> Tensor:
    """Cross entropy of every row, `[B, S]`, for reports by domain."""
    return F.cross_entropy(logits_BSV.transpose(1, 2).float(), label_BS, reduction="none")
