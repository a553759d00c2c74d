"""Calibration of acceptance from what happened so far: observed over predicted, per depth and per bin of the prediction.

A drafter's probabilities are off by a factor that differs from model to model, from depth to depth and from text to
text. A request counts, for every depth and bin, the acceptances that were predicted and those that came; their ratio
corrects the next prediction. Cells with little evidence lean on their bin over all depths, and that on the prediction
itself. Older rounds fade. Nothing of the round under way is read, so that under *reject* it may decide lengths.

Letters: B batch, N nodes, K depths, X bins.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from speccorrect.couple import BORDERS

FADE = 0.98
"""Weight of a round against the next one: the memory is some fifty rounds long."""
EVIDENCE = 4.0
"""Predicted acceptances by which a cell's own ratio weighs as much as the one it leans on."""
SUREST = 0.995
"""Predictions never say more than this: behind a certain node any number of others would look free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Faded sums of one request per batch row; row i of the second axis is depth i + 1."""

    predicted_BKX: Tensor  # fp32 sums of probabilities of nodes whose parent was accepted
    accepted_BKX: Tensor  # fp32 acceptances among them

    @classmethod
    def fresh(cls, batch: int, depths: int, device: torch.device | str = "cpu") -> "Tally":
        """No evidence yet."""
        shape = (batch, depths, len(BORDERS) + 1)
        return cls(
            predicted_BKX=torch.zeros(shape, device=device), accepted_BKX=torch.zeros(shape, device=device)
        )

    def clear(self, row: int) -> None:
        """Forget one batch row."""
        self.predicted_BKX[row].zero_()
        self.accepted_BKX[row].zero_()


def cells(step_BN: Tensor, depth_BN: Tensor) -> Tensor:
    """Flat index into K x X of every node, by its depth and its probability behind an accepted parent."""
    border_E = _borders(step_BN.device)
    # dead nodes stand at depth 0; they are never tried, so that their place does not matter
    return torch.bucketize(step_BN, border_E).add_(depth_BN.sub(1).clamp_(min=0), alpha=len(BORDERS) + 1)


@cache
def _borders(device: torch.device) -> Tensor:
    return torch.tensor(BORDERS, device=device)


def calibrated(step_BN: Tensor, cell_BN: Tensor, tally: Tally) -> Tensor:
    """Probabilities of nodes behind accepted parents, corrected by what was seen."""
    predicted, accepted = tally.predicted_BKX, tally.accepted_BKX
    over_depths = accepted.sum(dim=1, keepdim=True).add_(EVIDENCE) / predicted.sum(dim=1, keepdim=True).add_(
        EVIDENCE
    )
    ratio_BKX = accepted.add(over_depths, alpha=EVIDENCE).div_(predicted + EVIDENCE)
    return (step_BN * ratio_BKX.flatten(1).gather(1, cell_BN)).clamp(max=SUREST)


def observe(tally: Tally, step_BN: Tensor, cell_BN: Tensor, reached_BN: Tensor, accepted_BN: Tensor) -> None:
    """Fade, then count a round: raw probabilities of nodes, which of them the walk tried, and which it took."""
    tally.predicted_BKX.mul_(FADE).flatten(1).scatter_add_(1, cell_BN, step_BN * reached_BN)
    taken_BN = (accepted_BN & reached_BN).to(step_BN.dtype)
    tally.accepted_BKX.mul_(FADE).flatten(1).scatter_add_(1, cell_BN, taken_BN)
