"""Positions of rows in, which rows see which out: the block-causal staircase of block diffusion."""

from typing import Final

from torch import Tensor

BLOCK: Final = 32
"""Positions of a block as the published models were trained; their files do not say it."""


def block_causal(query_BQ: Tensor, memory_BT: Tensor, block: int) -> Tensor:
    """`[B, Q, T]` bool: a row sees its own block and all earlier ones, both ways inside its block.

    Blocks are aligned to position 0 of the text and not to the end of the prompt: a prompt's last block is shared with
    the first new tokens.
    """
    return memory_BT[:, None, :] // block <= query_BQ[:, :, None] // block
