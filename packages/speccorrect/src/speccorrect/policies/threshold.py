"""Threshold: stop before the first token that is too uncertain (the static rule of DSpark's public code)."""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

from speccorrect.policy import Costs, Outlook, PolicySpec, rows_to_depth


@dataclass(frozen=True, slots=True)
class Threshold:
    """Verify up to the first depth whose best token has less than this probability."""

    least: float = 0.3
    sequential = True
    priced = False
    evidence: Final = "scores"

    def rows(self, outlook: Outlook, costs: Costs) -> Tensor:
        del costs
        return rows_to_depth(outlook, (outlook.chain_BK >= self.least).cumprod(dim=-1).sum(dim=-1))


def _new(value: float | None) -> Threshold:
    if value is None:
        return Threshold()
    if not 0 <= value <= 1:
        raise ValueError(f"policy: got threshold={value:g}, expected a probability from 0 to 1")
    return Threshold(value)


SPEC = PolicySpec(
    name="threshold",
    title="threshold",
    paper="arXiv 2607.05147",
    summary="stop before the first token that is too uncertain",
    value="its least probability (default: 0.3)",
    new=_new,
)
