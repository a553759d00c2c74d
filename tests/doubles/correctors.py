"""Correctors made of a table: cheap, conditional on the whole path, and as easy to ask in Python as in tensors."""

from dataclasses import dataclass

import torch
from torch import Tensor

from speccorrect.products import Candidates


@dataclass(frozen=True)
class Tabled:
    candidates: Candidates


class TableCorrector:
    """Row `state` of a table of log-probabilities; a choice leads to another row, by a rule that mixes well."""

    support = None
    passes = None
    path_free_confidence = False

    def __init__(self, table_BSC: Tensor, slots: int) -> None:
        self.table = table_BSC
        self.slots = slots

    @staticmethod
    def random(seed: int, *, batch: int, slots: int, count: int, rows: int = 89, peak: float = 1.5):
        """Unequal rows of a few likely and many unlikely candidates."""
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(batch, rows, count, generator=generator) * peak
        return TableCorrector(logits.log_softmax(dim=-1), slots)

    def prepared(self, ids_BKC: Tensor | None = None) -> Tabled:
        batch, _, count = self.table.shape
        base = self.table.new_zeros(batch, self.slots, count)
        return Tabled(Candidates(ids_BKC=ids_BKC, base_BKC=base, lse_BK=base.logsumexp(dim=-1)))

    def prepare(self, block, borrowed, candidates):
        return Tabled(candidates)

    def start(self, prepared):
        return torch.zeros(self.table.shape[0], 1, 1, dtype=torch.int64)

    def scores(self, prepared, depth, state):
        return self.table.gather(1, state.expand(-1, -1, self.table.shape[-1]))

    def advance(self, prepared, depth, choice, state):
        return (state * 31 + choice[..., None] * 7 + 1) % self.table.shape[1]

    def block(self, prepared, choice):
        raise NotImplementedError

    def confidence(self, prepared, depth, state):
        return None

    def children(self, row: int):
        """The same for one batch row, as a function of a path of choices."""
        table = self.table[row].double().tolist()

        def of(path):
            state = 0
            for choice in path:
                state = (state * 31 + choice * 7 + 1) % len(table)
            return table[state]

        return of
