"""Packed documents go in, the drafter's training blocks and its hidden rows on them come out.

Letters: B rows of a batch, S tokens of a row, N anchors of a row, Q block rows (N blocks side by side), T memory rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from specmodels.dflash import BlockRows, DFlash, DFlashConfig, LayerKind, block_mask
from specmodels.kv import ContextMemory
from spectrain.data import Batch


class Anchors(NamedTuple):
    """Chosen places of every row, ascending; where a row has too few, the rest are not kept."""

    place_BN: Tensor  # int64 places in the row, not positions in the document
    kept_BN: Tensor  # bool


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
    offset_K = torch.arange(size)
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
        block_BQ=torch.arange(blocks).repeat_interleave(size).expand(count, -1),
        anchor_BQ=anchor_BQ,
    )
    label_BQ = batch.token_BS.gather(1, label_place_BQ)
    return Blocks(token_BQ, rows, document_BQ, label_BQ, trained_BQ, slot_BQ)


def training_mask(kind: LayerKind, blocks: Blocks, document_BS: Tensor, position_BS: Tensor) -> Tensor:
    """`[B, Q, S + Q]` bool: the decoding rule, with the context cut to the anchor's own document."""
    position_BT = torch.cat([position_BS, blocks.rows.position_BQ], dim=1)
    block_BT = torch.cat([torch.full_like(position_BS, -1), blocks.rows.block_BQ], dim=1)
    mask_BQT = block_mask(kind, blocks.rows, position_BT, block_BT)
    context = position_BS.shape[1]
    mask_BQT[:, :, :context] &= blocks.document_BQ[:, :, None] == document_BS[:, None, :]
    return mask_BQT


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
    masks = {
        kind: training_mask(kind, blocks, batch.document_BS, batch.position_BS) for kind in set(config.layers)
    }
    context = drafter.context_kv(context_BSD, batch.position_BS)
    memories = tuple(ContextMemory(context, masks[kind]) for kind in config.layers)
    return drafter(block_BQD, blocks.rows.position_BQ, memories, block_rows=config.block_size)
