"""CaDDTree's budget: grow while the throughput rises, on costs made convex (arXiv 2606.01813).

Measured costs have steps, at which an early stop would end too soon. Costs that rise and bend upwards leave one summit,
so that the first fall is behind it.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from speccorrect.policies.dspark import climb
from speccorrect.policy import Costs, Outlook, PolicySpec


def convex(seconds_T: Tensor) -> Tensor:
    """Costs whose increments never fall and are never negative: isotonic regression of the measured increments.

    By the formula max over a <= i of min over b >= i of the mean of increments a..b; the level is that of least squares.
    """
    step_X = seconds_T.diff()
    count = step_X.shape[0]
    if count == 0:
        return seconds_T
    place = torch.arange(count, device=step_X.device)
    total = torch.cat([step_X.new_zeros(1), step_X.cumsum(dim=0)])
    length = place - place[:, None] + 1
    mean = (total[1:] - total[:-1, None]) / length.clamp(min=1)
    mean = mean.masked_fill(length < 1, float("inf"))
    least = mean.flip(-1).cummin(dim=-1).values.flip(-1)
    rising = least.masked_fill(length < 1, float("-inf")).amax(dim=0).clamp(min=0)
    shape = torch.cat([rising.new_zeros(1), rising.cumsum(dim=0)])
    return shape + (seconds_T - shape).mean()


@dataclass(frozen=True, slots=True)
class CaDDTree:
    """Early stop on convex costs."""

    sequential = True
    priced = True
    evidence: Final = "scores"

    def rows(self, outlook: Outlook, costs: Costs) -> Tensor:
        return climb(outlook, convex(costs.seconds_T))


def _new(value: float | None) -> CaDDTree:
    del value
    return CaDDTree()


SPEC = PolicySpec(
    name="caddtree",
    title="CaDDTree's budget",
    paper="arXiv 2606.01813",
    summary="grow while the throughput rises, on costs made convex",
    value=None,
    new=_new,
)
