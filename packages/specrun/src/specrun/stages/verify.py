"""One pass of the target over all rows of a tree."""

import torch
from torch import Tensor

from speccorrect.law import History, LawPlan, shape_logits
from speccorrect.products import TokenTree
from specmodels.kv import CacheMemory
from specmodels.qwen3 import Qwen3
from specrun.products import Verified
from specrun.state import DecodeState


def verify(
    state: DecodeState, target: Qwen3, tree: TokenTree, *, taps: tuple[int, ...], plan: LawPlan, span: int
) -> Verified:
    """Score every node behind its own path. Node i goes to cache row anchor + i, at position anchor + depth."""
    anchor_B1 = state.length_B[:, None]
    nodes = tree.tokens_BN.shape[1]
    slots_BN = anchor_B1 + torch.arange(nodes, device=anchor_B1.device)
    positions_BN = (anchor_B1 + tree.depth_BN).clamp(max=target.config.max_positions - 1)
    past_B1T = torch.arange(span, device=anchor_B1.device) < anchor_B1[..., None]
    mask_BNT = past_B1T.repeat(1, nodes, 1).scatter_(
        2, slots_BN[:, None].expand(-1, nodes, -1), tree.sees_BNN
    )
    output = target(tree.tokens_BN, positions_BN, CacheMemory(state.target_kv, slots_BN, mask_BNT), taps)
    history = _history(state, tree) if plan.penalties else None
    shaped_BNV = shape_logits(target.logits(output.hidden_BQD), state.law, plan, history)
    return Verified(shaped_BNV, output.features_BQF)


def _history(state: DecodeState, tree: TokenTree) -> History:
    """Counts behind every node: the output so far, which holds the anchor, and the node's own path."""
    path_BNN = tree.sees_BNN[:, :, 1:].to(torch.int64)
    nodes = path_BNN.shape[1]
    tokens_BNN: Tensor = tree.tokens_BN[:, None, 1:].expand(-1, nodes, -1)
    counts_BNV = state.output_BV[:, None].repeat(1, nodes, 1).scatter_add_(2, tokens_BNN, path_BNN)
    return History(prompt_BV=state.prompt_BV, output_BNV=counts_BNV)
