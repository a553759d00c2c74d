"""Who sees whom in a drafter layer: one rule for decoding and for training."""

from dataclasses import dataclass

from torch import Tensor

from specmodels.dflash.config import LayerKind


@dataclass(frozen=True, slots=True)
class BlockRows:
    """Where block rows stand. Context rows carry block id -1."""

    position_BQ: Tensor  # absolute position of every row
    block_BQ: Tensor  # id of the block that the row belongs to
    anchor_BQ: Tensor  # position of that block's anchor


def block_mask(kind: LayerKind, queries: BlockRows, key_position_BT: Tensor, key_block_BT: Tensor) -> Tensor:
    """`[B, Q, T]` bool: a row sees context strictly before its anchor, and the rows of its own block.

    Strictly before: the anchor has no feature yet when its block is drafted, so training must not show it either.
    """
    query = queries.position_BQ[:, :, None]
    key = key_position_BT[:, None, :]
    context = (key_block_BT < 0)[:, None, :] & (key < queries.anchor_BQ[:, :, None])
    block = queries.block_BQ[:, :, None] == key_block_BT[:, None, :]
    if kind.causal:
        block = block & (key <= query)
    seen = context | block
    if kind.window is None:
        return seen
    return seen & (query - key < kind.window) & (key - query < kind.window)
