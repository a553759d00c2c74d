"""Who sees whom in a drafter layer: one rule for decoding and for training, for whole masks and for single pairs."""

from dataclasses import dataclass

from torch import Tensor

from specmodels.dflash.config import LayerKind


@dataclass(frozen=True, slots=True)
class BlockRows:
    """Where block rows stand. Context rows carry block id -1."""

    position_BQ: Tensor  # absolute position of every row
    block_BQ: Tensor  # id of the block that the row belongs to
    anchor_BQ: Tensor  # position of that block's anchor


def sees(
    kind: LayerKind, position: Tensor, block: Tensor, anchor: Tensor, key_position: Tensor, key_block: Tensor
) -> Tensor:
    """Whether a row sees a key; all arguments broadcast.

    A row sees context strictly before its anchor, and the rows of its own block. Strictly before: the anchor has no feature
    yet when its block is drafted, so training must not show it either.
    """
    own = block == key_block
    if kind.causal:
        own = own & (key_position <= position)
    seen = ((key_block < 0) & (key_position < anchor)) | own
    if kind.window is None:
        return seen
    return seen & (position - key_position < kind.window) & (key_position - position < kind.window)


def block_mask(kind: LayerKind, queries: BlockRows, key_position_BT: Tensor, key_block_BT: Tensor) -> Tensor:
    """`[B, Q, T]` bool: the rule for all pairs."""
    return sees(
        kind,
        queries.position_BQ[:, :, None],
        queries.block_BQ[:, :, None],
        queries.anchor_BQ[:, :, None],
        key_position_BT[:, None, :],
        key_block_BT[:, None, :],
    )
