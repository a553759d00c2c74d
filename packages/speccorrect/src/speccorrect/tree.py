"""Index arithmetic of draft trees: who sees whom, how deep a node is, a chain as a tree."""

import torch
from torch import Tensor

from speccorrect.products import Proposal, TokenTree


def ancestors(parent_BN: Tensor, levels: int) -> Tensor:
    """`[B, N, N]` bool, true where j is i or an ancestor of i, for trees at most `levels` deep. The root's parent is 0."""
    nodes = parent_BN.shape[1]
    identity = torch.eye(nodes, dtype=torch.float32, device=parent_BN.device)
    reach = identity.repeat(parent_BN.shape[0], 1, 1).scatter_(2, parent_BN[..., None], 1.0)
    hops = 1
    # squaring doubles the hops covered: log2 small products instead of one gather per level
    while hops < levels:
        reach = (reach @ reach).clamp_(max=1.0)
        hops *= 2
    return reach > 0


def build_tree(
    tokens_BN: Tensor, parent_BN: Tensor, valid_BN: Tensor, score_BN: Tensor, *, levels: int
) -> TokenTree:
    """Complete a tree from its nodes; dead nodes see themselves and the root, and hang there at depth 0."""
    dead = ~valid_BN
    parent_BN = parent_BN.masked_fill(dead, 0)
    sees = ancestors(parent_BN, levels)
    depth = (sees.sum(dim=-1) - 1).masked_fill(dead, 0)
    return TokenTree(
        tokens_BN=tokens_BN,
        parent_BN=parent_BN,
        depth_BN=depth,
        valid_BN=valid_BN,
        sees_BNN=sees,
        score_BN=score_BN.masked_fill(dead, float("-inf")),
    )


def chain_tree(anchor_B: Tensor, proposal: Proposal) -> TokenTree:
    """A drafted chain as a tree of K + 1 nodes."""
    chosen = proposal.scores_BKC.gather(-1, proposal.choice_BK[..., None]).squeeze(-1)
    return path_tree(torch.cat([anchor_B[:, None], proposal.tokens_BK], dim=1), chosen.cumsum(dim=-1))


def path_tree(tokens_BN: Tensor, score_BK: Tensor) -> TokenTree:
    """Tokens of one path, anchor first, as a tree."""
    batch, nodes = tokens_BN.shape
    index = torch.arange(nodes, device=tokens_BN.device)
    return TokenTree(
        tokens_BN=tokens_BN,
        parent_BN=(index - 1).clamp_(min=0).expand(batch, -1),
        depth_BN=index.expand(batch, -1),
        valid_BN=torch.ones_like(tokens_BN, dtype=torch.bool),
        sees_BNN=(index[:, None] >= index).expand(batch, -1, -1),
        score_BN=torch.cat([score_BK.new_zeros(batch, 1), score_BK], dim=1),
    )


def subtree(tree: TokenTree, kept_BN: Tensor) -> TokenTree:
    """The tree of some of the nodes: ascending indices, the root first, every node together with its ancestors."""
    batch, nodes = tree.tokens_BN.shape
    place_BN = torch.zeros_like(tree.parent_BN).scatter_(
        1, kept_BN, torch.arange(kept_BN.shape[1], device=kept_BN.device).expand(batch, -1)
    )
    rows_BNN = tree.sees_BNN.gather(1, kept_BN[..., None].expand(-1, -1, nodes))
    return TokenTree(
        tokens_BN=tree.tokens_BN.gather(1, kept_BN),
        parent_BN=place_BN.gather(1, tree.parent_BN.gather(1, kept_BN)),
        depth_BN=tree.depth_BN.gather(1, kept_BN),
        valid_BN=tree.valid_BN.gather(1, kept_BN),
        sees_BNN=rows_BNN.gather(2, kept_BN[:, None].expand(-1, kept_BN.shape[1], -1)),
        score_BN=tree.score_BN.gather(1, kept_BN),
    )


def first_nodes(tree: TokenTree, count: int) -> TokenTree:
    """The best subtree of `count` nodes, root included: a slice, since nodes stand in order of score."""
    return TokenTree(
        tokens_BN=tree.tokens_BN[:, :count],
        parent_BN=tree.parent_BN[:, :count],
        depth_BN=tree.depth_BN[:, :count],
        valid_BN=tree.valid_BN[:, :count],
        sees_BNN=tree.sees_BNN[:, :count, :count],
        score_BN=tree.score_BN[:, :count],
    )
