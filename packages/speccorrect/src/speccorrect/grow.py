"""Growth of a chain or a tree from a corrector's scores, on the device and with fixed shapes.

The tree is grown level by level. With as many lanes as nodes it equals best-first search with a heap: scores never rise
along a path, so a node among the best M of the tree is among the best M of its depth. Fewer lanes make it a beam.
(Level-synchronous growth: DominoTree, arXiv 2607.08642, and DARTree, arXiv 2608.13524.)
"""

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from speccorrect.contract import Corrector, Prepared
from speccorrect.couple import Coupling, couple
from speccorrect.products import Candidates, Proposal, TokenTree
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

    score_BE: Tensor
    choice_BE: Tensor
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
    if noise_BKC is not None and coupling is None:
        coupling = Coupling.constant(slots, 1.0, anchor_B.device)
    ranks = min(prepared.candidates.base_BKC.shape[-1], shape.ledger, shape.branches or shape.ledger)
    order = _order(shape, prepared.candidates.base_BKC.shape[-1], ranks, anchor_B.device)
    state = corrector.start(prepared)
    score_BW = state.new_zeros(state.shape[0], 1, dtype=torch.float32)
    for depth in range(slots if shape.nodes else 0):
        rows = _distinct(corrector.scores(prepared, depth, state))
        if noise_BKC is not None and coupling is not None:
            rows = couple(rows, noise_BKC[:, depth : depth + 1], depth, coupling)
        level = _next_level(rows, score_BW, shape, order, ranks)
        levels.append(level)
        if depth + 1 < slots:
            score_BW, choice_BW, parent_BW = (part[:, : shape.lanes] for part in level)
            state = state.gather(1, parent_BW[..., None].expand(-1, -1, state.shape[-1]))
            state = corrector.advance(prepared, depth, choice_BW, state)
    return _collect(levels, prepared.candidates, anchor_B, shape, slots)


def _distinct(scores_BWC: Tensor) -> Tensor:
    """One row where the head expanded one for all lanes: what no path changes is then ranked once."""
    return scores_BWC[:, :1] if scores_BWC.stride(1) == 0 else scores_BWC


class _Order(NamedTuple):
    """What the choice among children needs at every depth, computed once per tree."""

    tie_X: Tensor  # fp64 factors by place in a row: see `_ranked`
    lane_X: Tensor  # pairs (lane, rank) of children
    rank_X: Tensor


def _order(shape: TreeShape, count: int, ranks: int, device: torch.device) -> _Order:
    """The pairs are those that can be among the ledger's best where all lanes rank their children alike.

    The child of lane i with rank r stands behind the r + 1 first children of i lanes: all lanes before its own but
    lane 0, which is the chain's even where others score more.
    """
    lane = torch.arange(shape.lanes, device=device)
    width = (shape.ledger // lane.clamp(min=1)).clamp(max=ranks)
    pairs = _count_pairs(shape.lanes, shape, ranks)
    lane_X = lane.repeat_interleave(width, output_size=pairs)
    place_X = torch.arange(max(count, shape.lanes * ranks), device=device)
    rank_X = place_X[:pairs] - (width.cumsum(0) - width)[lane_X]
    return _Order(1 + place_X.double() * 2.0**-52, lane_X, rank_X)


def _count_pairs(lanes: int, shape: TreeShape, ranks: int) -> int:
    return sum(min(ranks, shape.ledger // max(1, lane)) for lane in range(lanes))


def _ranked(scores: Tensor, order: _Order) -> Tensor:
    """Scores in a total order: of equal ones the earlier is the larger.

    They are fp32 and at most 0, so that as doubles they have room for it below their last bit.
    """
    return scores * order.tie_X[: scores.shape[-1]]


def _next_level(rows_BWC: Tensor, score_BW: Tensor, shape: TreeShape, order: _Order, ranks: int) -> _Level:
    """The best children of the open paths, from a row of scores per path or one row for all of them."""
    lanes = score_BW.shape[1]
    apart = rows_BWC.shape[1] == lanes
    choice = _ranked(rows_BWC, order).topk(ranks, dim=-1).indices
    best, choice = rows_BWC.gather(-1, choice).flatten(1), choice.flatten(1)
    if apart:
        total = (score_BW[..., None] + best.view(-1, lanes, ranks)).flatten(1)
    else:
        pairs = _count_pairs(lanes, shape, ranks)
        lane, rank = order.lane_X[:pairs], order.rank_X[:pairs]
        total = score_BW.index_select(1, lane) + best.index_select(1, rank)
        choice = choice.index_select(1, rank)
    key = _ranked(total, order)
    if shape.contain_chain:
        # the chain's lane is always lane 0, since its node comes first at every depth
        key[:, 0] = float("inf")
    kept = key.topk(min(shape.ledger, key.shape[1]), dim=1).indices
    return _Level(total.gather(1, kept), choice.gather(1, kept), kept // ranks if apart else lane[kept])


def _collect(
    levels: list[_Level], candidates: Candidates, anchor_B: Tensor, shape: TreeShape, slots: int
) -> TokenTree:
    batch, device = anchor_B.shape[0], anchor_B.device
    root = torch.zeros(batch, 1, dtype=torch.int64, device=device)
    root_score = torch.zeros(batch, 1, device=device)
    if not levels:
        return build_tree(anchor_B[:, None], root, root == 0, root_score, levels=0)
    starts = [0, *accumulate(level.score_BE.shape[1] for level in levels)]
    total = starts.pop()
    scores = torch.cat([level.score_BE for level in levels], dim=1)
    keys = (
        torch.cat([level.score_BE + shape.depth_bonus * depth for depth, level in enumerate(levels)], dim=1)
        if shape.depth_bonus
        else scores.clone()
    )
    for start in starts if shape.contain_chain else ():
        keys[:, start] = float("inf")
    parents = torch.cat(
        [level.parent_BE + start for level, start in zip(levels, [total, *starts], strict=False)], dim=1
    )
    nodes = min(shape.nodes, total)
    kept = top_indices(keys, nodes)
    # ledger position -> node index; the last column stands for the root, which is node 0
    place = torch.zeros(batch, total + 1, dtype=torch.int64, device=device)
    place.scatter_(1, kept, torch.arange(1, nodes + 1, device=device).expand(batch, -1))
    tokens = torch.cat(
        [candidates.tokens(depth, level.choice_BE) for depth, level in enumerate(levels)], dim=1
    )
    score = scores.gather(1, kept)
    return build_tree(
        torch.cat([anchor_B[:, None], tokens.gather(1, kept)], dim=1),
        torch.cat([root, place.gather(1, parents.gather(1, kept))], dim=1),
        torch.cat([root == 0, score > float("-inf")], dim=1),
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
