"""The one place where an accepted path becomes output: it is cut, compacted, counted and handed to the drafter."""

import torch
from torch import Tensor

from speccorrect.products import TokenTree, Verdict
from specrun.products import Committed
from specrun.state import DecodeState


def commit(
    state: DecodeState,
    tree: TokenTree,
    verdict: Verdict,
    features_BNF: Tensor,
    *,
    branches: bool,
    penalties: bool,
) -> Committed:
    """Keep the accepted tokens up to a stop id or the budget, then move caches, features and lengths by that much.

    `branches` says whether accepted rows may stand apart in the cache, as they do behind a tree.
    """
    paths = min(state.features_BPF.shape[1], verdict.path_BP.shape[1])
    path_BP = verdict.path_BP[:, :paths]
    step = torch.arange(paths, device=path_BP.device)
    accepted_B1 = verdict.count_B[:, None] - 1
    drafted_BP = tree.tokens_BN.gather(1, path_BP.roll(-1, dims=1))
    new_BP = torch.where(step < accepted_B1, drafted_BP, verdict.bonus_B[:, None])

    stops_BP = (new_BP[..., None] == state.stop_ids_BX[:, None]).any(dim=-1) & (step <= accepted_B1)
    first_stop_B = torch.where(stops_BP, step, paths).amin(dim=1)
    count_B = torch.minimum(torch.minimum(verdict.count_B, first_stop_B + 1), state.remaining_B)
    count_B = count_B.masked_fill(state.done_B, 0)
    stopped_B = first_stop_B < count_B

    anchor_B1 = state.length_B[:, None]
    if branches:
        state.target_kv.move(anchor_B1 + path_BP, anchor_B1 + step)
    if features_BNF.shape[-1]:
        kept = state.done_B[:, None, None]
        rows = features_BNF.gather(1, path_BP[..., None].expand(-1, -1, features_BNF.shape[-1]))
        state.features_BPF[:, :paths] = torch.where(kept, state.features_BPF[:, :paths], rows)
        state.features_start_B.copy_(torch.where(state.done_B, state.features_start_B, state.length_B))
        state.features_count_B.copy_(torch.where(state.done_B, state.features_count_B, count_B))
    # ids behind the count are garbage that the next round overwrites
    state.tokens_BT.scatter_(1, anchor_B1 + 1 + step, new_BP)
    if penalties:
        state.output_BV.scatter_add_(1, new_BP, (step < count_B[:, None]).to(torch.int64))
    state.length_B += count_B
    state.remaining_B -= count_B
    state.done_B |= stopped_B | (state.remaining_B <= 0)
    return Committed(
        new_BP, count_B, accepted_B1.squeeze(1), stopped_B, state.done_B.clone(), tree.tokens_BN.shape[1]
    )
