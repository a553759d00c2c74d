"""xPress's loss: right behind the truth, right behind its own guesses, and a base that stays good (arXiv 2608.02438).

In: losses of the same kind for each. Out: their weighted sum. What a round of guesses is, its caller knows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

CONSISTENCY, BASE = 0.3, 0.6
ROUNDS = 3


def xpress_loss(taught: Tensor, rounds: Sequence[Tensor], base: Tensor) -> Tensor:
    """Teacher-forced loss, 0.3 times the mean over the rounds, 0.6 times that of the drafter's own logits.

    In round j the head is given its own best tokens of round j - 1; round 1 is given the drafter's.
    """
    return taught + CONSISTENCY * torch.stack(list(rounds)).mean() + BASE * base
