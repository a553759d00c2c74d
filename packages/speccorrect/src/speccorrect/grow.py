"""Growth of a chain or a tree from a corrector's scores, on the device and with fixed shapes.

The tree is grown level by level. With as many lanes as nodes it equals best-first search with a heap: scores never rise
along a path, so a node among the best M of the tree is among the best M of its depth. Fewer lanes make it a beam.
(Level-synchronous growth: DominoTree, arXiv 2607.08642, and DARTree, arXiv 2608.13524.)
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from speccorrect.contract import Corrector, Prepared
from speccorrect.couple import Coupling, couple
from speccorrect.products import Proposal, TokenTree
from speccorrect.tree import build_tree

P = TypeVar("P", bound=Prepared)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeShape:
    """How a tree grows."""

    nodes: int  # drafted nodes, the root not counted; 0 verifies the anchor alone
    lanes: int  # paths that stay open per depth
    ledger: int  # nodes that are remembered per depth; at least `lanes`
    branches: int | None = None  # children that one node may have; None for as many as there are candidates
    depth_bonus: float = (
        0.0  # added to a node's key once per depth; at most 0, so that parents outrank children
    )
    contain_chain: bool = True  # the greedy chain is always in the tree

    def __post_init__(self) -> None:
        if self.depth_bonus > 0:
            raise ValueError(
                f"depth bonus: got {self.depth_bonus}, expected at most 0, or children could outrank parents"
            )
        if not 0 < self.lanes <= self.ledger:
            raise ValueError(
                f"tree shape: got {self.lanes} lanes and a ledger of {self.ledger}, expected 0 < lanes <= ledger"
            )


def grow_chain(
    corrector: Corrector[P],
    prepared: P,
    slots: int,
    noise_BKC: Tensor | None = None,
    *,
    judged: bool = False,
) -> Proposal:
    """Draw one chain: argmax(scores + noise) per slot. `noise` is temperature times Gumbel; None is greedy.

    `judged` asks for the head's confidence in every slot, if it has any and draws slot by slot.

    A head with `passes` draws all slots at once by Jacobi iteration under the same frozen noise, and the scores that
    come back are those the last pass picked from: the q of what was really drawn.
    """
    if corrector.passes is not None:
        return _jacobi_chain(corrector, prepared, slots, noise_BKC, corrector.passes)
    rows, picks, state = [], [], corrector.start(prepared)
    confidences: list[Tensor] = []
    for depth in range(slots):
        confidence = corrector.confidence(prepared, depth, state) if judged else None
        if confidence is not None:
            confidences.append(confidence)
        row = corrector.scores(prepared, depth, state)
        pick = _pick(row, None if noise_BKC is None else noise_BKC[:, depth : depth + 1])
        rows.append(row)
        picks.append(pick)
        if depth + 1 < slots:
            state = corrector.advance(prepared, depth, pick, state)
    choice = torch.cat(picks, dim=1)
    proposal = _proposal(choice, torch.cat(rows, dim=1), prepared)
    return replace(proposal, confidence_BK=torch.cat(confidences, dim=1)) if confidences else proposal


def _jacobi_chain(
    corrector: Corrector[P], prepared: P, slots: int, noise_BKC: Tensor | None, passes: int
) -> Proposal:
    choice = _pick(prepared.candidates.base_BKC[:, :slots], noise_BKC)
    rows = choice
    for _ in range(passes):
        rows = corrector.block(prepared, choice)
        choice = _pick(rows, noise_BKC)
    return _proposal(choice, rows, prepared)


def _pick(scores: Tensor, noise: Tensor | None) -> Tensor:
    return (scores if noise is None else scores + noise.to(scores.dtype)).argmax(dim=-1)


def _proposal(choice_BK: Tensor, scores_BKC: Tensor, prepared: Prepared) -> Proposal:
    ids = prepared.candidates.ids_BKC
    tokens = choice_BK if ids is None else ids.gather(-1, choice_BK[..., None]).squeeze(-1)
    return Proposal(
        tokens_BK=tokens, choice_BK=choice_BK, scores_BKC=scores_BKC, candidates=prepared.candidates
    )


class _Level(NamedTuple):
    """The nodes remembered at one depth, best first; the first `lanes` of them are the open paths."""

    key_BE: Tensor  # what nodes are ranked by: +inf on the contained chain, -inf for dead nodes
    score_BE: Tensor
    token_BE: Tensor
    parent_BE: Tensor  # position in the level above


def grow_tree(
    corrector: Corrector[P],
    prepared: P,
    anchor_B: Tensor,
    slots: int,
    shape: TreeShape,
    noise_BKC: Tensor | None = None,
    coupling: Coupling | None = None,
) -> TokenTree:
    """Grow the tree of the `shape.nodes` best paths.

    With `noise` (the target's own, times its temperature) nodes are ranked by `couple`; without a coupling it is
    trusted fully.

    Nodes stand in descending order of key. Padding nodes, where candidates run out, are dead.
    """
    levels: list[_Level] = []
    trust = Coupling.constant(slots, 1.0, anchor_B.device) if coupling is None else coupling
    state = corrector.start(prepared)
    score_BW = state.new_zeros(state.shape[0], 1, dtype=torch.float32)
    for depth in range(slots if shape.nodes else 0):
        scores = corrector.scores(prepared, depth, state)
        if noise_BKC is not None:
            scores = couple(scores, noise_BKC[:, depth : depth + 1], depth, trust)
        level, choice_BW, lane_BW = _next_level(scores, score_BW, prepared, depth, shape)
        levels.append(level)
        if depth + 1 < slots:
            score_BW = level.score_BE[:, : lane_BW.shape[1]]
            state = state.gather(1, lane_BW[..., None].expand(-1, -1, state.shape[-1]))
            state = corrector.advance(prepared, depth, choice_BW, state)
    return _collect(levels, anchor_B, shape, slots)


def _next_level(
    scores_BWC: Tensor, score_BW: Tensor, prepared: Prepared, depth: int, shape: TreeShape
) -> tuple[_Level, Tensor, Tensor]:
    count = scores_BWC.shape[-1]
    total = score_BW[..., None] + scores_BWC
    key = total + shape.depth_bonus * (depth + 1) if shape.depth_bonus else total
    if shape.branches is not None and shape.branches < count:
        best = scores_BWC.topk(shape.branches, dim=-1).indices
        key = torch.full_like(key, float("-inf")).scatter(-1, best, key.gather(-1, best))
    if shape.contain_chain:
        # the chain's lane is always lane 0: its key is the largest there is, and ties fall to the lowest index
        best = scores_BWC[:, :1].argmax(dim=-1, keepdim=True)
        key = torch.cat([key[:, :1].scatter(-1, best, float("inf")), key[:, 1:]], dim=1)
    flat = key.flatten(1)
    kept = top_indices(flat, min(shape.ledger, flat.shape[1]))
    parent, choice = kept // count, kept % count
    kept_key = flat.gather(1, kept)
    # what may not be a node is dead for good: a finite score would bring it back where live nodes run out
    score = total.flatten(1).gather(1, kept).masked_fill(kept_key == float("-inf"), float("-inf"))
    level = _Level(
        kept_key,
        score,
        prepared.candidates.tokens(depth, choice),
        parent,
    )
    open_lanes = min(shape.lanes, kept.shape[1])
    return level, choice[:, :open_lanes], parent[:, :open_lanes]


def _collect(levels: list[_Level], anchor_B: Tensor, shape: TreeShape, slots: int) -> TokenTree:
    batch, device = anchor_B.shape[0], anchor_B.device
    root = torch.zeros(batch, 1, dtype=torch.int64, device=device)
    root_score = torch.zeros(batch, 1, device=device)
    if not levels:
        return build_tree(anchor_B[:, None], root, root == 0, root_score, levels=0)
    keys = torch.cat([level.key_BE for level in levels], dim=1)
    starts, total = [], 0
    for level in levels:
        starts.append(total)
        total += level.key_BE.shape[1]
    parents = torch.cat(
        [level.parent_BE + (starts[depth - 1] if depth else total) for depth, level in enumerate(levels)],
        dim=1,
    )
    nodes = min(shape.nodes, total)
    kept = top_indices(keys, nodes)
    # ledger position -> node index; the last column stands for the root, which is node 0
    place = torch.zeros(batch, total + 1, dtype=torch.int64, device=device)
    place.scatter_(1, kept, torch.arange(1, nodes + 1, device=device).expand(batch, -1))
    parent = torch.where(parents.gather(1, kept) == total, 0, place.gather(1, parents.gather(1, kept)))
    tokens = torch.cat([level.token_BE for level in levels], dim=1).gather(1, kept)
    score = torch.cat([level.score_BE for level in levels], dim=1).gather(1, kept)
    valid = score > float("-inf")
    return build_tree(
        torch.cat([anchor_B[:, None], tokens], dim=1),
        torch.cat([root, parent], dim=1),
        torch.cat([torch.ones_like(root, dtype=torch.bool), valid], dim=1),
        torch.cat([root_score, score], dim=1),
        levels=slots,
    )


def top_indices(key_BX: Tensor, count: int) -> Tensor:
    """Indices of the `count` largest fp32 keys, descending, ties to the lower index.

    Equal to a stable sort, at the price of one top-k: the key's bits in sortable order above the inverted index. The
    two zeros are one key.
    """
    bits = key_BX.contiguous().view(torch.int32)
    ordered = torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits).to(torch.int64)
    index = torch.arange(key_BX.shape[1], device=key_BX.device)
    packed = (ordered << 32) | (0x7FFFFFFF - index)
    return packed.topk(count, dim=1).indices
