"""Packed documents go in, the drafter's training blocks and its hidden rows on them come out.

Letters: B rows of a batch, S tokens of a row, N anchors of a row, Q block rows (N blocks side by side), T memory rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from specmodels.dflash import BlockRows, DFlash, DFlashConfig, LayerKind, sees
from specmodels.kv import ContextMemory
from spectrain.data import Batch


class Anchors(NamedTuple):
    """Chosen places of every row, ascending; where a row has too few, the rest are not kept."""

    place_BN: Tensor  # int64 places in the row, not positions in the document
    kept_BN: Tensor  # bool

    def to(self, device: torch.device) -> "Anchors":
        """The same places on a device."""
        return Anchors(*(part.to(device) for part in self))


class Blocks(NamedTuple):
    """Training blocks: what the drafter reads and what it should say."""

    token_BQ: Tensor  # the anchor's token, then masks
    rows: BlockRows  # positions are those of the documents
    document_BQ: Tensor  # document of the anchor, which bounds the context
    label_BQ: Tensor  # token that a row should predict
    trained_BQ: Tensor  # bool: the label exists and belongs to the anchor's response
    slot_BQ: Tensor  # drafted tokens before this row's; -1 for a row that drafts nothing


def anchor_candidates(batch: Batch) -> Tensor:
    """`[B, S]` bool: response tokens that another response token of the same document follows."""
    next_response = batch.response_BS.roll(-1, dims=1)
    same = batch.document_BS == batch.document_BS.roll(-1, dims=1)
    candidate_BS = batch.response_BS & next_response & same
    candidate_BS[:, -1] = False
    return candidate_BS


def sample_anchors(candidate_BS: Tensor, count: int, generator: torch.Generator) -> Anchors:
    """Draw up to `count` different candidates of every row."""
    key_BS = torch.rand(candidate_BS.shape, generator=generator).masked_fill(~candidate_BS, -1.0)
    key_BN, place_BN = key_BS.topk(min(count, candidate_BS.shape[1]), dim=1)
    kept_BN = key_BN >= 0
    # those that are not kept go to the end
    order_BN = place_BN.masked_fill(~kept_BN, candidate_BS.shape[1]).argsort(dim=1)
    kept_BN = kept_BN.gather(1, order_BN)
    return Anchors(place_BN.gather(1, order_BN).masked_fill(~kept_BN, 0), kept_BN)


def make_blocks(batch: Batch, anchors: Anchors, config: DFlashConfig) -> Blocks:
    """Lay out one block per anchor; a block that is not kept stands at the row's start and trains nothing."""
    size, (count, row) = config.block_size, batch.token_BS.shape
    blocks = anchors.place_BN.shape[1]
    offset_K = torch.arange(size, device=batch.token_BS.device)
    place_BQ = (anchors.place_BN[:, :, None] + offset_K).flatten(1)
    start_BQ = anchors.place_BN.repeat_interleave(size, dim=1)
    token_BQ = torch.full_like(place_BQ, config.mask_token_id)
    token_BQ[:, ::size] = batch.token_BS.gather(1, anchors.place_BN)
    anchor_BQ = batch.position_BS.gather(1, start_BQ)
    document_BQ = batch.document_BS.gather(1, start_BQ)
    label_place_BQ = place_BQ + int(config.shifted)
    inside_BQ = label_place_BQ < row
    label_place_BQ = label_place_BQ.clamp_max(row - 1)
    slot_BQ = (offset_K - (0 if config.shifted else 1)).repeat(blocks).expand(count, -1)
    trained_BQ = (
        inside_BQ
        & (slot_BQ >= 0)
        & anchors.kept_BN.repeat_interleave(size, dim=1)
        & batch.response_BS.gather(1, label_place_BQ)
        & (batch.document_BS.gather(1, label_place_BQ) == document_BQ)
    )
    rows = BlockRows(
        position_BQ=anchor_BQ + offset_K.repeat(blocks),
        block_BQ=torch.arange(blocks, device=offset_K.device).repeat_interleave(size).expand(count, -1),
        anchor_BQ=anchor_BQ,
    )
    label_BQ = batch.token_BS.gather(1, label_place_BQ)
    return Blocks(token_BQ, rows, document_BQ, label_BQ, trained_BQ, slot_BQ)


class _Row(NamedTuple):
    """What the mask asks of a row; context rows have block -1 and no anchor."""

    position: Tensor
    block: Tensor
    document: Tensor  # of block rows: the anchor's


def _seen(kind: LayerKind, row: _Row, anchor: Tensor, key: _Row) -> Tensor:
    """The one rule: that of decoding, with the context cut to the anchor's own document. All arguments broadcast."""
    seen = sees(kind, row.position, row.block, anchor, key.position, key.block)
    return seen & ((key.block >= 0) | (key.document == row.document))


def _rows_and_keys(blocks: Blocks, document_BS: Tensor, position_BS: Tensor) -> tuple[_Row, _Row]:
    row = _Row(blocks.rows.position_BQ, blocks.rows.block_BQ, blocks.document_BQ)
    context = _Row(position_BS, torch.full_like(position_BS, -1), document_BS)
    key = _Row(*(torch.cat(pair, dim=1) for pair in zip(context, row, strict=True)))
    return row, key


def training_mask(kind: LayerKind, blocks: Blocks, document_BS: Tensor, position_BS: Tensor) -> Tensor:
    """`[B, Q, S + Q]` bool: who sees whom, for all pairs."""
    row, key = _rows_and_keys(blocks, document_BS, position_BS)
    return _seen(
        kind,
        _Row(*(part_BQ[:, :, None] for part_BQ in row)),
        blocks.rows.anchor_BQ[:, :, None],
        _Row(*(part_BT[:, None, :] for part_BT in key)),
    )


def training_block_mask(
    kind: LayerKind, blocks: Blocks, document_BS: Tensor, position_BS: Tensor
) -> BlockMask:
    """The same in the form of flex_attention, which computes only where somebody sees something.

    Anchors stand in ascending order, so most of it is empty.
    """
    row, key = _rows_and_keys(blocks, document_BS, position_BS)
    anchor_BQ = blocks.rows.anchor_BQ

    def seen(b: Tensor, h: Tensor, q: Tensor, t: Tensor) -> Tensor:
        del h
        one, other = (_Row(*(part[b, place] for part in side)) for side, place in ((row, q), (key, t)))
        return _seen(kind, one, anchor_BQ[b, q], other)

    count, rows = row.position.shape
    return create_block_mask(
        seen, B=count, H=None, Q_LEN=rows, KV_LEN=key.position.shape[1], device=row.position.device
    )


def draft_rows(
    drafter: DFlash, features_BSF: Tensor, block_BQD: Tensor, blocks: Blocks, batch: Batch
) -> Tensor:
    """Hidden rows `[B, Q, D]` of all blocks, given the target's features of the rows and the embedded block tokens."""
    return rows_behind(drafter, drafter.context(features_BSF), block_BQD, blocks, batch)


def rows_behind(
    drafter: DFlash, context_BSD: Tensor, block_BQD: Tensor, blocks: Blocks, batch: Batch
) -> Tensor:
    """The same given the fused features."""
    config = drafter.config
    # whole masks of many anchors would fill a GPU, and masks by blocks of rows are slow elsewhere
    mask_of = training_block_mask if block_BQD.is_cuda else training_mask
    masks = {kind: mask_of(kind, blocks, batch.document_BS, batch.position_BS) for kind in set(config.layers)}
    context = drafter.context_kv(context_BSD, batch.position_BS)
    memories = tuple(ContextMemory(context, masks[kind]) for kind in config.layers)
    return drafter(block_BQD, blocks.rows.position_BQ, memories, block_rows=config.block_size)
