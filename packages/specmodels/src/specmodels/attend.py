"""Grouped-query attention: a naive twin and the fast form behind one signature."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


def attend_naive(query_BAQH: Tensor, key_BGTH: Tensor, value_BGTH: Tensor, mask_BQT: Tensor | None) -> Tensor:
    """Softmax attention written from its definition; the oracle of `attend`."""
    groups = query_BAQH.shape[1] // key_BGTH.shape[1]
    key_BATH = key_BGTH.repeat_interleave(groups, dim=1)
    value_BATH = value_BGTH.repeat_interleave(groups, dim=1)
    scores_BAQT = query_BAQH @ key_BATH.transpose(-1, -2) / query_BAQH.shape[-1] ** 0.5
    if mask_BQT is None:
        rows, columns = scores_BAQT.shape[-2:]
        mask_BQT = torch.ones(1, rows, columns, dtype=torch.bool, device=query_BAQH.device).tril(
            columns - rows
        )
    if mask_BQT.dtype == torch.bool:
        mask_BQT = mask_addend(mask_BQT, query_BAQH.dtype)
    scores_BAQT = scores_BAQT + mask_BQT[:, None]
    return scores_BAQT.softmax(dim=-1) @ value_BATH


def mask_addend(mask_BQT: Tensor, dtype: torch.dtype) -> Tensor:
    """Zero where the mask is true and minus infinity elsewhere, for scores of rows of `dtype`.

    The fast form makes it of a bool mask in every layer; made once, it costs a third less attention on a CPU.
    """
    return torch.zeros_like(mask_BQT, dtype=dtype).masked_fill_(~mask_BQT, float("-inf"))


def attend(
    query_BAQH: Tensor, key_BGTH: Tensor, value_BGTH: Tensor, mask_BQT: "Tensor | BlockMask | None"
) -> Tensor:
    """Attention of A query heads over G key heads; `mask_BQT` None means causal and needs as many rows as columns.

    The mask is true where a row sees another, or the same as an addend (see `mask_addend`). Every query row must see at
    least one memory row. A mask by blocks of rows goes to `attend_blocks`.
    """
    if not isinstance(mask_BQT, Tensor | None):
        # decoding never needs it, and its import takes as long as that of a small model
        from specmodels.flex import attend_blocks  # noqa: PLC0415

        return attend_blocks(query_BAQH, key_BGTH, value_BGTH, mask_BQT)
    grouped = query_BAQH.shape[1] != key_BGTH.shape[1]
    mask = None if mask_BQT is None else mask_BQT[:, None]
    return F.scaled_dot_product_attention(
        query_BAQH, key_BGTH, value_BGTH, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped
    )
