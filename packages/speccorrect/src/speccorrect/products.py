"""What flows between drafting, correction, growth, verification and acceptance: small frozen types, no behaviour.

Letters: B batch, K drafted slots, R hidden rows of a block, C candidates of a slot, D width, V vocabulary, N tree nodes
(root included), P rows of an accepted path.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftBlock:
    """One drafted block, whatever its slot layout: the hidden row that scores drafted token j is `first + j`."""

    hidden_BRD: Tensor  # the drafter's rows after its final norm, R = K + first
    first: int  # 0 where the anchor's own row scores the first token (shifted layout), else 1 (fill-in)
    anchor_B: Tensor  # int64: last committed token, not yet in the target's cache
    before_B: Tensor  # int64: the token before the anchor; equal to the anchor where there is none
    feature_BD: Tensor  # the drafter's fused target feature at the position before the anchor
    feature_valid_B: Tensor  # bool: false where the anchor is the first token

    @property
    def slots(self) -> int:
        """K, the number of drafted tokens."""
        return self.hidden_BRD.shape[1] - self.first

    @property
    def rows_BKD(self) -> Tensor:
        """The hidden rows that score drafted tokens 1..K."""
        return self.hidden_BRD[:, self.first :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Borrowed:
    """Tensors of the target that heads read and never change."""

    embedding_VD: Tensor
    head_VD: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The tokens that a head may propose at every slot, with the drafter's base logits.

    Ids of one slot are distinct; a padded or repeated entry has base -inf.
    """

    ids_BKC: Tensor | None  # int64; None is the whole vocabulary in order (C = V)
    base_BKC: Tensor  # fp32 logits
    lse_BK: Tensor  # fp32 logsumexp over the whole vocabulary, always

    def tokens(self, depth: int, choice_BW: Tensor) -> Tensor:
        """Token ids `[B, W]` of indices into a slot's candidates."""
        return choice_BW if self.ids_BKC is None else self.ids_BKC[:, depth].gather(1, choice_BW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A drafted chain together with the scores that it was drawn from."""

    tokens_BK: Tensor  # int64
    choice_BK: Tensor  # int64: index into the slot's candidates
    scores_BKC: Tensor  # fp32 log-probabilities at temperature 1, of the very rows that the draw read
    candidates: Candidates
    confidence_BK: Tensor | None = (
        None  # fp32 logits of acceptance, each from before its draw, where asked for
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTree:
    """Nodes to verify, parents before children. Node 0 is the anchor; a chain is a tree without branches.

    Nodes behind the root stand in descending order of the key that the grower ranks by (the contained chain first, then
    scores), so the first M nodes are the tree that a budget of M would have grown.
    """

    tokens_BN: Tensor  # int64; node 0 carries the anchor
    parent_BN: Tensor  # int64 index of the parent; 0 for the root itself and for dead nodes
    depth_BN: Tensor  # int64; 0 for the root and for dead nodes
    valid_BN: Tensor  # bool; dead nodes pad a tree that ran out of candidates
    sees_BNN: Tensor  # bool: [i, j] is true where j is i or an ancestor of i
    score_BN: (
        Tensor  # fp32 log-probability of the node's path under the draft; 0 at the root, -inf at dead nodes
    )


class Verdict(NamedTuple):
    """What the target accepted: rows of the tree along one path, and the token that follows it."""

    path_BP: (
        Tensor  # int64 node indices of the accepted path, root first; entries behind `count` repeat the last
    )
    count_B: Tensor  # int64 accepted rows, root included: also the number of new tokens
    bonus_B: Tensor  # int64: the target's own next token behind the path
