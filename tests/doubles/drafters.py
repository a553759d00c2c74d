"""Drafts that a test dictates: a real drafter runs below them, and what it proposes is replaced.

A rule says which token is drafted where. It may look at the script of a request, which is its prompt and what plain
decoding puts behind it, so that acceptance can be had to the token.
"""

from collections.abc import Callable, Sequence

import torch

from speccorrect.correctors.none import Marginals, NoCorrector
from speccorrect.products import Borrowed, Candidates, DraftBlock
from specrun.state import DecodeState

Rule = Callable[[Sequence[int], int, int, int], int]
"""(script, absolute position, depth from 0, vocabulary) -> drafted token."""

SURE = 12.0
"""Logit of the dictated token over those of the others, which lie within 1 of each other."""


def oracle(script, position, depth, vocab):
    return script[position] if position < len(script) else 0


def wrong(script, position, depth, vocab):
    return (oracle(script, position, depth, vocab) + 1) % vocab


def right_for(good: int) -> Rule:
    """Right in the first `good` slots of every block, wrong behind them."""

    def rule(script, position, depth, vocab):
        return (oracle if depth < good else wrong)(script, position, depth, vocab)

    return rule


def mixed(script, position, depth, vocab):
    """Right for a number of slots that changes from block to block."""
    good = (position - depth) * 7 % 5
    return right_for(good)(script, position, depth, vocab)


def random_tokens(script, position, depth, vocab):
    return (position * 2654435761 + depth * 40503) % 4294967291 % vocab


def always(token: int) -> Rule:
    """One token everywhere, whatever it means."""

    def rule(script, position, depth, vocab):
        return token

    return rule


class Scripted(NoCorrector):
    """Slots by themselves, as without a head, with the rule's token far ahead of evenly spread others."""

    def __init__(
        self, rule: Rule, scripts: Sequence[Sequence[int]], state: Callable[[], DecodeState]
    ) -> None:
        super().__init__()
        self.rule, self.scripts, self.state = rule, scripts, state

    def prepare(self, block: DraftBlock, borrowed: Borrowed, candidates: Candidates) -> Marginals:
        vocab, state = borrowed.head_VD.shape[0], self.state()
        ids = torch.arange(vocab)
        base_BKV = ((ids * 7 + torch.arange(block.slots)[:, None] * 3) % vocab / vocab).repeat(
            len(block.anchor_B), 1, 1
        )
        for row, (request, length) in enumerate(
            zip(state.request_B.tolist(), state.length_B.tolist(), strict=True)
        ):
            for depth in range(block.slots):
                token = self.rule(self.scripts[request], length + 1 + depth, depth, vocab)
                base_BKV[row, depth, token] += SURE
        own = Candidates(ids_BKC=None, base_BKC=base_BKV, lse_BK=base_BKV.logsumexp(dim=-1))
        return Marginals(own, base_BKV - own.lse_BK[..., None])
