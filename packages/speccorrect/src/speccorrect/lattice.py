"""Scores that depend on nothing but the candidate before: one table per block, and a walk through it.

A head whose score of a candidate needs only the slot's predecessor computes all pairs at once. Walking the table is then
one gather per depth, for a chain and for a tree alike. Which head filled the table, this file does not know.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from speccorrect.products import Candidates


@dataclass(frozen=True, slots=True)
class Lattice:
    """All pairs of neighbouring candidates; the state of a walk is the index `[B, W, 1]` of the last one."""

    candidates: Candidates
    link_BKCC: Tensor  # fp32 log-probabilities over the last axis, given the predecessor on the one before


def best_candidates(candidates: Candidates, count: int) -> Candidates:
    """The `count` most probable candidates of every slot, or all if there are fewer, in descending order."""
    base, best = candidates.base_BKC.topk(min(count, candidates.base_BKC.shape[-1]), dim=-1)
    ids = best if candidates.ids_BKC is None else candidates.ids_BKC.gather(-1, best)
    return Candidates(ids_BKC=ids, base_BKC=base, lse_BK=candidates.lse_BK)


def lattice(candidates: Candidates, first_BC: Tensor, pairs_BKCC: Tensor) -> Lattice:
    """Normalise raw scores: `first` of slot 0, `pairs` of every later slot behind each candidate of the one before.

    Slot 0 has no predecessor, so its row is repeated for all of them: the walk then needs no special case.
    """
    count = first_BC.shape[-1]
    start_B1CC = first_BC[:, None, None].expand(-1, 1, count, -1)
    link = torch.cat([start_B1CC, pairs_BKCC], dim=1).float()
    absent = candidates.base_BKC == float("-inf")
    return Lattice(candidates, link.masked_fill(absent[:, :, None], float("-inf")).log_softmax(dim=-1))


def walk_start(prepared: Lattice) -> Tensor:
    """The state before slot 0: any index will do."""
    link = prepared.link_BKCC
    return torch.zeros(link.shape[0], 1, 1, dtype=torch.int64, device=link.device)


def walk_scores(prepared: Lattice, depth: int, state_BWS: Tensor) -> Tensor:
    """The rows of the lanes' last candidates."""
    link_BCC = prepared.link_BKCC[:, depth]
    return link_BCC.gather(1, state_BWS.expand(-1, -1, link_BCC.shape[-1]))


def walk_block(prepared: Lattice, choice_BK: Tensor) -> Tensor:
    """The rows of all slots along given choices."""
    before_BK = torch.cat([torch.zeros_like(choice_BK[:, :1]), choice_BK[:, :-1]], dim=1)
    link = prepared.link_BKCC[:, : choice_BK.shape[1]]
    return link.gather(2, before_BK[..., None, None].expand(-1, -1, 1, link.shape[-1])).squeeze(2)
