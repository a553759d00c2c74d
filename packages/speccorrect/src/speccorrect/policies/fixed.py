"""Fixed: the same number of rows in every round."""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

from speccorrect.policy import Costs, Outlook, PolicySpec


@dataclass(frozen=True, slots=True)
class Fixed:
    """Verify `count` rows, the anchor included, or all where there are fewer."""

    count: int | None = None  # None verifies everything
    sequential = True
    priced = False
    evidence: Final = "scores"

    def rows(self, outlook: Outlook, costs: Costs) -> Tensor:
        del costs
        most = outlook.nodes + 1
        rows_B = outlook.depth_BM.new_ones(outlook.depth_BM.shape[0])
        return rows_B * (most if self.count is None else min(self.count, most))


def _new(value: float | None) -> Fixed:
    if value is not None and (value < 1 or value != int(value)):
        raise ValueError(f"policy: got fixed={value:g}, expected a whole number of rows from 1")
    return Fixed(None if value is None else int(value))


SPEC = PolicySpec(
    name="fixed",
    title="fixed",
    paper="-",
    summary="the same rows in every round; all of them without a number",
    value="rows of a verification, the anchor included",
    new=_new,
)
