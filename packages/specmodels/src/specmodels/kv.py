"""Key and value memory: a static cache for decoding, plain rows and context rows for training.

All of them answer one question: with these new keys and values of layer `l`, what may the queries attend to? None of
them holds a position or a length: who calls says which rows to write and which rows to see.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Memory(Protocol):
    """What a model's attention needs from its surroundings."""

    @property
    def mask_BQT(self) -> Tensor | None:
        """True where a query row sees a memory row; None means causal over the rows themselves."""

    def join(self, layer: int, key_BGQH: Tensor, value_BGQH: Tensor) -> tuple[Tensor, Tensor]:
        """Take the new rows of a layer in and return all keys and values `[B, G, T, H]` that the mask speaks of."""


class StaticKV:
    """Keys and values `[L, B, G, T, H]` of fixed capacity T, allocated once.

    Rows that nobody has written yet are zero: a masked row still takes part as 0 x value, so it has to be finite.
    """

    def __init__(
        self,
        *,
        layers: int,
        batch: int,
        kv_heads: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        shape = (layers, batch, kv_heads, capacity, head_dim)
        self.key_LBGTH = torch.zeros(shape, dtype=dtype, device=device)
        self.value_LBGTH = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def capacity(self) -> int:
        return self.key_LBGTH.shape[3]

    def write(self, layer: int, slots_BQ: Tensor, key_BGQH: Tensor, value_BGQH: Tensor) -> None:
        """Put rows `[B, G, Q, H]` at cache rows `slots_BQ`; the slots of one batch row must be distinct."""
        index = slots_BQ[:, None, :, None].expand_as(key_BGQH)
        self.key_LBGTH[layer].scatter_(2, index, key_BGQH)
        self.value_LBGTH[layer].scatter_(2, index, value_BGQH)

    def move(self, from_BP: Tensor, to_BP: Tensor) -> None:
        """Copy rows `from_BP` of all layers to rows `to_BP`; sources are read before any row is written."""
        layers, _, groups, _, width = self.key_LBGTH.shape
        shape = (layers, -1, groups, -1, width)
        source = from_BP[None, :, None, :, None].expand(shape)
        target = to_BP[None, :, None, :, None].expand(shape)
        for buffer in (self.key_LBGTH, self.value_LBGTH):
            buffer.scatter_(3, target, buffer.gather(3, source))


@dataclass(frozen=True, slots=True)
class CacheMemory:
    """New rows go into a `StaticKV`; queries see its first `mask_BQT.shape[-1]` rows through the mask."""

    kv: StaticKV
    slots_BQ: Tensor  # int64: cache row of every new row
    mask_BQT: Tensor  # bool

    def join(self, layer: int, key_BGQH: Tensor, value_BGQH: Tensor) -> tuple[Tensor, Tensor]:
        self.kv.write(layer, self.slots_BQ, key_BGQH, value_BGQH)
        span = self.mask_BQT.shape[-1]
        return self.kv.key_LBGTH[layer, :, :, :span], self.kv.value_LBGTH[layer, :, :, :span]


@dataclass(frozen=True, slots=True)
class RowsMemory:
    """No past: the new rows attend to each other, causally unless a mask says otherwise."""

    mask_BQT: Tensor | None = None

    def join(self, layer: int, key_BGQH: Tensor, value_BGQH: Tensor) -> tuple[Tensor, Tensor]:
        del layer
        return key_BGQH, value_BGQH


@dataclass(frozen=True, slots=True)
class ContextMemory:
    """Context rows computed beside the new rows, with gradients: memory rows are `[context; new rows]`."""

    context: tuple[tuple[Tensor, Tensor], ...]  # per layer: keys and values [B, G, S, H]
    mask_BQT: Tensor

    def join(self, layer: int, key_BGQH: Tensor, value_BGQH: Tensor) -> tuple[Tensor, Tensor]:
        key, value = self.context[layer]
        return torch.cat([key, key_BGQH], dim=2), torch.cat([value, value_BGQH], dim=2)
