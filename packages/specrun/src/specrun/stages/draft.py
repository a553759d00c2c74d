"""One pass of the drafter: the last committed features go into its cache, a block of hidden rows comes out."""

import torch

from speccorrect.products import DraftBlock
from specmodels.dflash import BlockRows, DFlash, block_mask
from specmodels.kv import CacheMemory
from specmodels.qwen3 import Qwen3
from specrun.state import DecodeState


def draft(state: DecodeState, target: Qwen3, drafter: DFlash, *, block_size: int, span: int) -> DraftBlock:
    """Draft a block of `block_size` rows; no row of any request stands at or behind cache row `span`."""
    assert state.draft_kv is not None, "this state was allocated without a drafter"
    config, device = drafter.config, state.tokens_BT.device
    limit = config.max_positions - 1
    window = torch.arange(state.features_BPF.shape[1], device=device)
    context_BPD = drafter.context(state.features_BPF)
    # a full window is written every round: rows behind the count are garbage that the mask hides and the next overwrites
    positions_BP = state.features_start_B[:, None] + window
    for layer, (key, value) in enumerate(drafter.context_kv(context_BPD, positions_BP.clamp(max=limit))):
        state.draft_kv.write(layer, positions_BP, key, value)

    anchor_B1 = state.length_B[:, None]
    slots_BQ = anchor_B1 + torch.arange(block_size, device=device)
    block = torch.zeros_like(slots_BQ)
    rows = BlockRows(position_BQ=slots_BQ, block_BQ=block, anchor_BQ=anchor_B1.expand_as(slots_BQ))
    cache_BT = torch.arange(span, device=device).expand(slots_BQ.shape[0], -1)
    # context, then the block itself, then rows that belong to nobody yet
    owner_BT = torch.where(cache_BT < anchor_B1, -1, torch.where(cache_BT < anchor_B1 + block_size, 0, 1))
    by_kind = {
        kind: CacheMemory(state.draft_kv, slots_BQ, block_mask(kind, rows, cache_BT, owner_BT))
        for kind in set(config.layers)
    }
    memories = tuple(by_kind[kind] for kind in config.layers)

    anchor_B = state.anchor_B()
    tokens_BQ = torch.full_like(slots_BQ, config.mask_token_id)
    tokens_BQ[:, 0] = anchor_B
    hidden_BRD = drafter(target.embed(tokens_BQ), slots_BQ.clamp(max=limit), memories)
    last_B = (state.features_count_B - 1)[:, None, None].expand(-1, 1, context_BPD.shape[-1])
    return DraftBlock(
        hidden_BRD=hidden_BRD,
        first=0 if config.shifted else 1,
        anchor_B=anchor_B,
        before_B=state.tokens_BT.gather(1, (state.length_B - 1).clamp(min=0)[:, None]).squeeze(1),
        feature_BD=context_BPD.gather(1, last_B).squeeze(1),
        feature_valid_B=state.length_B > 0,
    )
