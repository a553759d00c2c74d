"""AdaFlash's decision: the length that a trained head foretells, with a margin (arXiv 2607.19223)."""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

from speccorrect.policy import Costs, Outlook, PolicySpec, rows_to_depth


@dataclass(frozen=True, slots=True)
class AdaFlash:
    """Verify the head's share of the block times `margin`, the anchor included. Needs a drafter with such a head."""

    margin: float = 1.3
    sequential = True  # the head reads the drafter's rows, which were there before any token was drawn
    priced = False
    evidence: Final = "scores"

    def rows(self, outlook: Outlook, costs: Costs) -> Tensor:
        del costs
        assert outlook.length_B is not None, "the drafter carries no head of lengths"
        block = outlook.chain_BK.shape[1] + 1
        rows_B = (outlook.length_B * block * self.margin).round().clamp(1, block).long()
        return rows_to_depth(outlook, rows_B - 1)


def _new(value: float | None) -> AdaFlash:
    if value is None:
        return AdaFlash()
    if not 0 < value < float("inf"):
        raise ValueError(f"policy: got adaflash={value:g}, expected a margin above 0")
    return AdaFlash(value)


SPEC = PolicySpec(
    name="adaflash",
    title="AdaFlash",
    paper="arXiv 2607.19223",
    summary="the length that the drafter's own head foretells",
    value="margin on the foretold length (default: 1.3)",
    new=_new,
)
