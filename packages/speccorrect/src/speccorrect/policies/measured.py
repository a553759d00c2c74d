"""Measured: the number of rows with the most expected tokens per second, out of all there are. Our own.

Costs have steps, so the summit is looked for and not climbed. In a batch whose requests verify equally many rows that is
one comparison per width; where rows are counted in all, they go to the most probable nodes of the whole batch, which is
the best that any distribution of that many could do.
"""

from dataclasses import dataclass
from typing import Final

from torch import Tensor
from torch.nn import functional as F

from speccorrect.policy import Costs, Outlook, PolicySpec, share


@dataclass(frozen=True, slots=True)
class Measured:
    """Argmax of expected tokens over measured seconds; of equals, the fewest rows."""

    sequential = False
    priced = True
    evidence: Final = "corrected"

    def rows(self, outlook: Outlook, costs: Costs) -> Tensor:
        batch, nodes = outlook.reach_BM.shape
        if costs.even:
            gain = outlook.reach_BM.sum(dim=0)
            seconds = costs.seconds_T[batch - 1 : batch * (nodes + 1) : batch]
        else:
            gain = outlook.reach_BM.flatten().sort(descending=True).values
            seconds = costs.seconds_T[batch - 1 : batch * (nodes + 1)]
        expected = F.pad(gain.cumsum(dim=0), (1, 0)).add_(batch)
        best = (expected / seconds).argmax()
        return (best + 1).expand(batch) if costs.even else share(outlook, best)


def _new(value: float | None) -> Measured:
    del value
    return Measured()


SPEC = PolicySpec(
    name="measured",
    title="measured",
    paper="-",
    summary="the most expected tokens per second, by costs measured on this machine",
    value=None,
    new=_new,
)
