"""LibraSpec: verify as far as further acceptance is expected from every slot before (arXiv 2608.08721).

Standing behind i - 1 tokens, R_i more are expected to be accepted, and it is worth verifying up to slot
floor(alpha R_i + i). The smallest of these bounds is the length. alpha stands for the price of a row on one machine.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from speccorrect.policy import Costs, Outlook, PolicySpec, rows_to_depth

LONGEST = 24
"""Slots that the rule may ask for; at most as many are verified as were drafted."""


def further(chain_BK: Tensor) -> Tensor:
    """R_i, the tokens expected to be accepted from slot i on: q_i + q_i q_{i+1} + ..., by R_i = q_i (1 + R_{i+1})."""
    behind_B = torch.zeros_like(chain_BK[:, 0])
    found: list[Tensor] = []
    for depth in range(chain_BK.shape[1] - 1, -1, -1):
        behind_B = chain_BK[:, depth] * (1 + behind_B)
        found.append(behind_B)
    return torch.stack(found[::-1], dim=1)


def wanted(chain_BK: Tensor, alpha: float) -> Tensor:
    """Slots worth verifying, int64 `[B]`; more than were drafted asks for a longer draft."""
    slot_K = torch.arange(1, chain_BK.shape[1] + 1, device=chain_BK.device)
    # in double precision, so that a bound that is a whole number is not rounded below itself
    bound_BK = (alpha * further(chain_BK.double()) + slot_K).floor()
    return bound_BK.amin(dim=-1).clamp(1, LONGEST).to(torch.int64)


@dataclass(frozen=True, slots=True)
class LibraSpec:
    """One block, one retreat."""

    alpha: float = 2.2
    sequential = False  # the bound of a slot looks at the slots behind it
    priced = False
    evidence: Final = "scores"

    def rows(self, outlook: Outlook, costs: Costs) -> Tensor:
        del costs
        return rows_to_depth(outlook, wanted(outlook.chain_BK, self.alpha))


def _new(value: float | None) -> LibraSpec:
    if value is None:
        return LibraSpec()
    if not 0 <= value < float("inf"):
        raise ValueError(f"policy: got libraspec={value:g}, expected alpha of at least 0")
    return LibraSpec(value)


SPEC = PolicySpec(
    name="libraspec",
    title="LibraSpec",
    paper="arXiv 2608.08721",
    summary="as far as every slot before it still expects acceptance",
    value="alpha (default: 2.2)",
    new=_new,
)
