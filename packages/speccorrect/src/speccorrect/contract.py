"""The one contract that every correction head fulfils.

A corrector is a conditional next-token model over one drafted block: q(x_k | anchor, x_1 .. x_{k-1}). A chain walks it
with one lane, a tree with many; neither knows which head it drives.

Call order: `prepare` once per block, `start` for the state behind the anchor, then for every depth `scores` and
`advance`. The caller gathers states by parent before `advance`, so a head never sees a tree.

Letters: B batch, W lanes, K slots, C candidates of a slot, S width of the state.
"""

from typing import Protocol, TypeVar

import torch
from torch import Tensor

from speccorrect.products import Borrowed, Candidates, DraftBlock


class Prepared(Protocol):
    """What no path changes, computed once per block; every head extends it with tensors of its own."""

    @property
    def candidates(self) -> Candidates:
        """The candidates that the scores speak of: those given, or the head's own."""


P = TypeVar("P", bound=Prepared)


class Corrector(Protocol[P]):
    """A correction head.

    Rules that hold for every method below:

    * Scores are fp32 log-probabilities at temperature 1 whose exponentials sum to at most 1 over C. An index that is
      not offered scores -inf. A score is never NaN, whatever the state of a dead lane.
    * No head knows the sampling temperature: the draw is argmax(scores + T * G) with Gumbel noise G, and q is
      softmax(scores / T).
    * `depth` is a Python integer from 0 to K - 1; no method reads a device value on the host.
    * No argument is written to.
    """

    support: int | None
    """Most candidates per slot that the head can score; None for any number and for the whole vocabulary."""

    passes: int | None
    """Calls of `block` that draw a whole chain by Jacobi iteration; None draws the chain slot by slot."""

    path_free_confidence: bool
    """True if `confidence` ignores the drafted tokens, so that a policy may compare all depths before any draw."""

    def prepare(self, block: DraftBlock, borrowed: Borrowed, candidates: Candidates) -> P:
        """Gather everything that no path changes."""

    def start(self, prepared: P) -> Tensor:
        """State `[B, 1, S]` behind the anchor. S may be 0."""

    def scores(self, prepared: P, depth: int, state_BWS: Tensor) -> Tensor:
        """Log-probabilities `[B, W, C]` of the token at `depth` for every lane's path."""

    def advance(self, prepared: P, depth: int, choice_BW: Tensor, state_BWS: Tensor) -> Tensor:
        """State `[B, W, S]` after taking candidate `choice_BW` at `depth`; legal, and unused, after the last slot."""

    def block(self, prepared: P, choice_BK: Tensor) -> Tensor:
        """Log-probabilities `[B, K, C]` of all slots along given choices: row k equals `scores` after choices `< k`."""

    def confidence(self, prepared: P, depth: int, state_BWS: Tensor) -> Tensor | None:
        """Logit `[B, W]` of acceptance at `depth`, before the draw; None for heads that have no such output."""


def unroll(corrector: Corrector[P], prepared: P, choice_BK: Tensor) -> Tensor:
    """`block` from the step calls: the definition that every shortcut has to equal."""
    rows, state = [], corrector.start(prepared)
    for depth in range(choice_BK.shape[1]):
        rows.append(corrector.scores(prepared, depth, state))
        state = corrector.advance(prepared, depth, choice_BK[:, depth : depth + 1], state)
    return torch.cat(rows, dim=1)
