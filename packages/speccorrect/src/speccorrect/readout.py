"""From a head's narrow feature to one additive score per candidate: a `[V, R]` table, read for the slots' candidates.

It knows nothing of heads. R is the rank of the table, D the target's width; other letters as in `contract.py`.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from speccorrect.products import Candidates


class Readout(NamedTuple):
    """A table as one block needs it: whole where the candidates are the vocabulary, else their rows."""

    rows_BKCR: Tensor | None  # gathered once per block, fp32
    whole: Tensor | None  # [V, R], or [V, D] behind `widen`; in its own dtype
    widen_DR: Tensor | None

    def slot(self, depth: int, feature_BWR: Tensor) -> Tensor:
        """Scores `[B, W, C]` in fp32 at one slot, for a feature per lane."""
        if self.rows_BKCR is None:
            return self._over_vocabulary(feature_BWR)
        return torch.bmm(feature_BWR, self.rows_BKCR[:, depth].mT)

    def slots(self, feature_BKR: Tensor) -> Tensor:
        """Scores `[B, K, C]` in fp32 of the first slots, for a feature per slot."""
        if self.rows_BKCR is None:
            return self._over_vocabulary(feature_BKR)
        rows = self.rows_BKCR[:, : feature_BKR.shape[1]]
        return torch.matmul(rows, feature_BKR[..., None]).squeeze(-1)

    def _over_vocabulary(self, feature: Tensor) -> Tensor:
        assert self.whole is not None, "a readout holds rows or a whole table"
        # in the table's dtype: casting a table of the vocabulary's length would cost more than the product
        feature = feature.to(self.whole.dtype)
        if self.widen_DR is not None:
            feature = F.linear(feature, self.widen_DR.to(feature.dtype))
        return F.linear(feature, self.whole).float()


def read(table_VR: Tensor, candidates: Candidates) -> Readout:
    """Read a table for the candidates: one gather, after which no step touches the vocabulary."""
    ids = candidates.ids_BKC
    if ids is None:
        return Readout(None, table_VR, None)
    if _shared(ids):
        return Readout(None, F.embedding(ids[0, 0], table_VR), None)
    return Readout(F.embedding(ids, table_VR).float(), None, None)


def _shared(ids_BKC: Tensor) -> bool:
    """Whether one list of ids stands for all slots: a reduced vocabulary as a whole, expanded and not copied."""
    return ids_BKC.stride()[:2] == (0, 0)


def read_widened(head_VD: Tensor, widen_DR: Tensor, candidates: Candidates) -> Readout:
    """The same for the table head @ widen, which is folded for listed candidates only: whole it is never worth it."""
    ids = candidates.ids_BKC
    if ids is None:
        return Readout(None, head_VD, widen_DR)
    if _shared(ids):
        return Readout(None, F.embedding(ids[0, 0], head_VD), widen_DR)
    rows = torch.matmul(F.embedding(ids, head_VD), widen_DR.to(head_VD.dtype))
    return Readout(rows.float(), None, None)
