"""Attention under a mask that is known block by block of rows: only the parts that somebody sees are computed.

For training on CUDA, where whole masks of many anchors would fill the memory. On the CPU it is as slow as it is general.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention


@cache
def _compiled() -> Any:
    # without compilation it computes all scores
    return torch.compile(flex_attention)


def attend_blocks(query_BAQH: Tensor, key_BGTH: Tensor, value_BGTH: Tensor, mask: BlockMask) -> Tensor:
    """The same as `attend` under the same mask."""
    run = _compiled() if query_BAQH.is_cuda else flex_attention
    grouped = query_BAQH.shape[1] != key_BGTH.shape[1]
    return run(query_BAQH, key_BGTH, value_BGTH, block_mask=mask, enable_gqa=grouped)
