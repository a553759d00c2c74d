"""A proposal to what a length policy reads of it, the policy's answer to fewer rows, and what came of them to experience.

Under *reject* a sampled token may not decide whether it is tested. So no policy sees tokens, the probability of a slot
is that of its likeliest token, and a policy that compares all slots sees the drafter's marginals alone, which no draw
has moved.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from speccorrect.length_head import LengthHead, smooth
from speccorrect.policy import LengthPolicy, Outlook
from speccorrect.products import Proposal, TokenTree, Verdict
from speccorrect.tally import SUREST, calibrated, cells, observe
from speccorrect.tree import first_nodes, subtree
from specrun.config import AcceptRule
from specrun.products import Grown
from specrun.state import DecodeState

LEAST = 1e-12
"""Probabilities are kept above this, so that their logarithms can be summed along paths."""


class Sight(NamedTuple):
    """What a policy reads, and what is needed to learn from the outcome."""

    outlook: Outlook
    step_BM: Tensor  # fp32 probability of every drafted node behind its parent, as the drafter has it; 0 for dead ones
    cell_BM: Tensor  # int64: its place in the tally
    order_BM: Tensor | None  # drafted nodes by descending reach; None where they stand in that order


def look(
    state: DecodeState,
    grown: Grown,
    policy: LengthPolicy,
    *,
    accept: AcceptRule,
    head: LengthHead | None,
    hidden_BRD: Tensor,
) -> Sight:
    """Probabilities of what was grown, from the source that the policy names."""
    tree, proposal = grown
    step_BM = _behind_parents(tree) if proposal is None else _along_chain(tree, proposal, policy, accept)
    depth_BM = tree.depth_BN[:, 1:]
    cell_BM = cells(step_BM, depth_BM)
    if policy.evidence == "corrected":
        likely_BM = calibrated(step_BM, cell_BM, state.tally)
    else:
        likely_BM = step_BM.clamp(max=SUREST)
    length_B = None
    if head is not None:
        length_B = smooth(torch.sigmoid(head(hidden_BRD)), state.length_share_B)
        state.length_share_B.copy_(length_B)
    if proposal is not None:
        outlook = Outlook(
            reach_BM=likely_BM.cumprod(dim=-1), depth_BM=depth_BM, chain_BK=likely_BM, length_B=length_B
        )
        order_BM = None
    else:
        outlook, order_BM = _ranked(tree, likely_BM, state.predicted_BKX.shape[1], length_B)
    return Sight(outlook, step_BM, cell_BM, order_BM)


def trim(grown: Grown, sight: Sight, rows: int) -> tuple[Grown, Sight]:
    """The most probable `rows` rows, anchor included, and the sight of them."""
    tree, proposal = grown
    if rows >= tree.tokens_BN.shape[1]:
        return grown, sight
    if sight.order_BM is not None:
        kept_BM = sight.order_BM[:, : rows - 1].sort(dim=1).values
        step_BM, cell_BM = sight.step_BM.gather(1, kept_BM - 1), sight.cell_BM.gather(1, kept_BM - 1)
        kept_BN = torch.cat([kept_BM.new_zeros(kept_BM.shape[0], 1), kept_BM], dim=1)
        return Grown(subtree(tree, kept_BN), None), sight._replace(step_BM=step_BM, cell_BM=cell_BM)
    assert proposal is not None, "only chains stand in the order of their probability"
    shorter = Proposal(
        tokens_BK=proposal.tokens_BK[:, : rows - 1],
        choice_BK=proposal.choice_BK[:, : rows - 1],
        scores_BKC=proposal.scores_BKC[:, : rows - 1],
        candidates=proposal.candidates,
    )
    return Grown(first_nodes(tree, rows), shorter), sight._replace(
        step_BM=sight.step_BM[:, : rows - 1], cell_BM=sight.cell_BM[:, : rows - 1]
    )


def learn(state: DecodeState, tree: TokenTree, sight: Sight, verdict: Verdict) -> None:
    """Count which of the verified nodes the walk tried, and which it took."""
    if sight.order_BM is None:
        # along a chain the depth says all: depths below the count were taken, and the one behind them was tried
        count_B1, depth_BM = verdict.count_B[:, None], tree.depth_BN[:, 1:]
        tried_BM, taken_BM = depth_BM <= count_B1, depth_BM < count_B1
    else:
        walked_BN = torch.zeros_like(tree.valid_BN).scatter_(1, verdict.path_BP, value=True)
        tried_BM = walked_BN.gather(1, tree.parent_BN[:, 1:]) & tree.valid_BN[:, 1:]
        taken_BM = walked_BN[:, 1:]
    observe(state.tally, sight.step_BM, sight.cell_BM, tried_BM, taken_BM)


def _along_chain(tree: TokenTree, proposal: Proposal, policy: LengthPolicy, accept: AcceptRule) -> Tensor:
    if policy.evidence == "confidence" and proposal.confidence_BK is not None:
        return torch.sigmoid(proposal.confidence_BK)
    if accept == "match":
        # the likeliest token is the drafted one, whose probability the tree holds
        return tree.score_BN.diff(dim=1).exp()
    if policy.sequential:
        return proposal.scores_BKC.amax(dim=-1).exp()
    candidates, slots = proposal.candidates, proposal.tokens_BK.shape[1]
    return (candidates.base_BKC.amax(dim=-1) - candidates.lse_BK)[:, :slots].exp()


def _behind_parents(tree: TokenTree) -> Tensor:
    step_BN = (tree.score_BN - tree.score_BN.gather(1, tree.parent_BN)).exp()
    return step_BN.masked_fill(~tree.valid_BN, 0.0)[:, 1:].contiguous()


def _ranked(
    tree: TokenTree, likely_BM: Tensor, depths: int, length_B: Tensor | None
) -> tuple[Outlook, Tensor]:
    """Nodes by the probability of their paths; a child never comes before its parent, being less probable."""
    logs_BM = likely_BM.clamp(min=LEAST).log()
    total_BM = (tree.sees_BNN[:, 1:, 1:].float() @ logs_BM[..., None]).squeeze(-1)
    reach_BM = total_BM.exp().masked_fill(~tree.valid_BN[:, 1:], 0.0)
    reach_BM, order = reach_BM.sort(dim=-1, descending=True, stable=True)
    depth_BM = tree.depth_BN[:, 1:].gather(1, order)
    best = reach_BM.new_zeros(reach_BM.shape[0], depths + 1).scatter_reduce(1, depth_BM, reach_BM, "amax")
    best[:, 0] = 1.0
    chain_BK = best[:, 1:] / best[:, :-1].clamp(min=LEAST)
    return Outlook(reach_BM=reach_BM, depth_BM=depth_BM, chain_BK=chain_BK, length_B=length_B), order + 1
