"""A model of block diffusion whose guesses a test writes down: a function from positions and tokens to guesses."""

from collections.abc import Callable

import torch
from torch import Tensor

from specmodels.kv import StaticKV

from doubles.tiny import llada2_config

Rule = Callable[[list[int], list[int]], list[tuple[int, float]]]


class Scripted:
    """Stands where a Llada2 stands; every guess has the probability that the rule gives it."""

    def __init__(self, rule: Rule, **changes) -> None:
        self.config = llada2_config(**changes)
        self.rule, self.passes = rule, 0
        self.embedding = torch.zeros(1)

    def __call__(self, tokens_BQ: Tensor, positions_BQ: Tensor, memory: object) -> Tensor:
        del memory
        self.passes += 1
        return torch.stack([positions_BQ, tokens_BQ], dim=-1).double()

    def logits(self, hidden_QD: Tensor) -> Tensor:
        positions, tokens = hidden_QD.long().T.tolist()
        vocabulary = self.config.vocab_size
        rows = []
        for token, sure in self.rule(positions, tokens):
            row = torch.full((vocabulary,), (1 - sure) / (vocabulary - 2))
            row[token] = sure
            rows.append(row.log())
        return torch.stack(rows)

    def new_kv(self, *, batch: int, capacity: int) -> StaticKV:
        return StaticKV(layers=1, batch=batch, kv_heads=1, capacity=capacity, head_dim=2, dtype=torch.float32)
