"""DSpark's scheduler: add the most probable token of the whole batch while that raises the throughput, then stop.

The walk ends at the first token that does not pay, even if a later one would (arXiv 2607.05147): whether a token is
verified then depends on nothing behind it, which is what keeps the text exact under *reject*.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from speccorrect.policy import Costs, Outlook, PolicySpec, share


def climb(outlook: Outlook, seconds_T: Tensor) -> Tensor:
    """Rows per request when tokens are added in descending order of probability until one does not raise the rate."""
    batch = outlook.reach_BM.shape[0]
    ordered = outlook.reach_BM.flatten().sort(descending=True).values
    expected = batch + torch.cat([ordered.new_zeros(1), ordered.cumsum(dim=0)])
    rate = expected / seconds_T[batch - 1 : batch + ordered.shape[0]]
    rising = (rate[1:] > rate[:-1]).cumprod(dim=0)
    return share(outlook, rising.sum())


@dataclass(frozen=True, slots=True)
class DSpark:
    """Early stop on the measured costs as they are."""

    sequential = True
    priced = True
    evidence: Final = "confidence"

    def rows(self, outlook: Outlook, costs: Costs) -> Tensor:
        return climb(outlook, costs.seconds_T)


def _new(value: float | None) -> DSpark:
    del value
    return DSpark()


SPEC = PolicySpec(
    name="dspark",
    title="DSpark's scheduler",
    paper="arXiv 2607.05147",
    summary="add tokens while each raises the measured throughput",
    value=None,
    new=_new,
)
