"""Domino's curriculum: at first the drafter's own logits learn, in the end the corrected ones alone (arXiv 2605.29707).

In: cross entropies of both along the truth, and how far the run is. Out: one loss.
"""

from dataclasses import dataclass

from torch import Tensor

from spectrain.objectives.weighting import weighted_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Curriculum:
    """The base's share over a run. Without the run's length there is no curriculum, so none can be left out unnoticed."""

    steps: int  # optimiser steps of the whole run, at least 1
    ratio: float = 1.0  # share of the steps until the base's share has reached 0, in (0, 1]

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 < self.ratio <= 1:
            raise ValueError(
                f"curriculum: got {self.steps} steps and ratio {self.ratio}, expected at least 1 and a ratio in (0, 1]"
            )

    def base_share(self, step: int) -> float:
        """1 at the first step, falling linearly; a step outside the run is an error, not a share of 0."""
        if not 0 <= step < self.steps:
            raise ValueError(
                f"curriculum: got step {step}, expected 0 to {self.steps - 1}; give the run's true number of steps"
            )
        return max(0.0, 1.0 - step / (self.ratio * self.steps))


def domino_loss(final_nll_MK: Tensor, base_nll_MK: Tensor, weight_MK: Tensor, base_share: float) -> Tensor:
    """Weighted mean of the two cross entropies, mixed."""
    return weighted_mean((1 - base_share) * final_nll_MK + base_share * base_nll_MK, weight_MK)
