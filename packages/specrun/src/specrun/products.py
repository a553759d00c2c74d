"""What the stages of a round hand on, beyond the types of `speccorrect`."""

from typing import NamedTuple

from torch import Tensor

from speccorrect.products import Proposal, TokenTree, Verdict


class Grown(NamedTuple):
    """The rows to verify; for a chain also the proposal with the scores it was drawn from."""

    tree: TokenTree
    proposal: Proposal | None


class Verified(NamedTuple):
    """The target's view of the rows of a tree."""

    shaped_BNV: Tensor  # logits under the law, at temperature 1, -inf where filtered
    features_BNF: Tensor  # tapped features of the rows


class Committed(NamedTuple):
    """What the host reads after a round, and nothing else."""

    new_BP: Tensor  # int64 new tokens, of which the first `count` were kept
    count_B: Tensor  # int64 kept tokens; 0 for rows that were done before
    accepted_B: Tensor  # int64 drafted tokens that the target accepted, before any cut
    stopped_B: Tensor  # bool: the last kept token is a stop id
    done_B: Tensor  # bool
    rows: int  # that the target ran of every request, the anchor included


class Round(NamedTuple):
    """All that one round proposed and what became of it, for whoever watches; it lives until the next round starts."""

    tree: TokenTree
    shaped_BNV: Tensor  # the target's logits behind every node, as in `Verified`
    verdict: Verdict
    committed: Committed
