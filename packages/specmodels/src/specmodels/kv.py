"""Key and value memory: a static cache for decoding, plain rows and context rows for training.

All of them answer one question: with these new keys and values of layer `l`, what may the queries attend to? None of
them holds a position or a length: who calls says which rows to write and which rows to see.
"""

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from specmodels.attend import mask_addend

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


class Memory(Protocol):
    """What a model's attention needs from its surroundings."""

    @property
    def mask_BQT(self) -> "Tensor | BlockMask | None":
        """Which memory rows a query row sees, as `attend` takes it; None means causal over the rows themselves."""

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

    def row(self, index: int) -> "StaticKV":
        """One batch row as a cache of its own; it shares this cache's memory."""
        view = copy.copy(self)
        view.key_LBGTH = self.key_LBGTH[:, index : index + 1]
        view.value_LBGTH = self.value_LBGTH[:, index : index + 1]
        return view

    def write(self, layer: int, slots_BQ: Tensor, key_BGQH: Tensor, value_BGQH: Tensor) -> None:
        """Put rows `[B, G, Q, H]` at cache rows `slots_BQ`; the slots of one batch row must be distinct."""
        key_BGTH, value_BGTH = self.key_LBGTH[layer], self.value_LBGTH[layer]
        if slots_BQ.shape[0] == 1:
            # one row has one list of slots: whole vectors are copied, at less than half the cost on a CPU
            key_BGTH.index_copy_(2, slots_BQ[0], key_BGQH)
            value_BGTH.index_copy_(2, slots_BQ[0], value_BGQH)
            return
        index = slots_BQ[:, None, :, None].expand_as(key_BGQH)
        key_BGTH.scatter_(2, index, key_BGQH)
        value_BGTH.scatter_(2, index, value_BGQH)

    def move(self, from_BP: Tensor, to_BP: Tensor) -> None:
        """Copy rows `from_BP` of all layers to rows `to_BP`; sources are read before any row is written."""
        layers, _, groups, _, width = self.key_LBGTH.shape
        shape = (layers, -1, groups, -1, width)
        source = from_BP[None, :, None, :, None].expand(shape)
        target = to_BP[None, :, None, :, None].expand(shape)
        for buffer in (self.key_LBGTH, self.value_LBGTH):
            buffer.scatter_(3, target, buffer.gather(3, source))


class CacheMemory:
    """New rows go into a `StaticKV`; queries see its first `mask_BQT.shape[-1]` rows through the mask.

    Layers with the same mask should share one memory: the mask is brought into the form of `attend` when it is made.
    """

    def __init__(self, kv: StaticKV, slots_BQ: Tensor, mask_BQT: Tensor) -> None:
        """`slots_BQ` int64 is the cache row of every new row; `mask_BQT` bool is true where a query row sees a cache row."""
        self.kv, self.slots_BQ = kv, slots_BQ
        self.mask_BQT = mask_addend(mask_BQT, kv.key_LBGTH.dtype)

    def join(self, layer: int, key_BGQH: Tensor, value_BGQH: Tensor) -> tuple[Tensor, Tensor]:
        self.kv.write(layer, self.slots_BQ, key_BGQH, value_BGQH)
        span = self.mask_BQT.shape[-1]
        return self.kv.key_LBGTH[layer, :, :, :span], self.kv.value_LBGTH[layer, :, :, :span]


@dataclass(frozen=True, slots=True)
class RowsMemory:
    """No past: the new rows attend to each other, causally unless a mask says otherwise."""

    mask_BQT: Tensor | None = None  # as `attend` takes it

    def join(self, layer: int, key_BGQH: Tensor, value_BGQH: Tensor) -> tuple[Tensor, Tensor]:
        del layer
        return key_BGQH, value_BGQH


@dataclass(frozen=True, slots=True)
class ContextMemory:
    """Context rows computed beside the new rows, with gradients: memory rows are `[context; new rows]`."""

    context: tuple[tuple[Tensor, Tensor], ...]  # per layer: keys and values [B, G, S, H]
    mask_BQT: "Tensor | BlockMask"  # as `attend` takes it

    def join(self, layer: int, key_BGQH: Tensor, value_BGQH: Tensor) -> tuple[Tensor, Tensor]:
        key, value = self.context[layer]
        return torch.cat([key, key_BGQH], dim=2), torch.cat([value, value_BGQH], dim=2)
