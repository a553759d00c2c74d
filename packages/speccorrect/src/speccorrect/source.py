"""What a checkpoint holds beside the drafter's backbone, handed to whichever head claims it.

A head pops what it uses; whoever opened the checkpoint refuses it if anything is left. So every tensor and every key is
claimed exactly once, without a central list.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor, nn

T = TypeVar("T")
Number = TypeVar("Number", int, float)

MOST_SIZE = 2**24
"""Of any number of a head: no width, rank or id of a model is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """Sizes that a head shares with its target and drafter."""

    hidden_size: int  # D of the drafter's hidden rows and of the target's embedding
    vocab_size: int  # V of the target
    block_size: int  # rows of a block, anchor included
    shifted: bool  # the anchor's own row scores the first token
    norm_eps: float = 1e-6  # of the drafter's norms, which heads with norms of their own share
    layout_stated: bool = (
        True  # false where a checkpoint is silent on `shifted`: its family's habit was taken
    )

    @property
    def slots(self) -> int:
        """K, the number of drafted tokens."""
        return self.block_size if self.shifted else self.block_size - 1


@dataclass(slots=True)
class HeadSource:
    """Unclaimed config keys and tensors of a checkpoint; `take_*` removes what it returns."""

    shape: HeadShape
    config: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    draft_ids_v: Tensor | None = (
        None  # target ids of a reduced drafter vocabulary, rising; None is the target's
    )

    def take_key(self, key: str, kind: type[T], default: T | None = None) -> T:
        """A config value of type `kind`; without a default a missing key is an error."""
        if key not in self.config:
            if default is None:
                raise ValueError(f"config key {key!r}: missing, expected {kind.__name__}")
            return default
        value = self.config.pop(key)
        if kind is float and type(value) is int:
            value = float(value)
        # exact types: to isinstance, True is an integer
        if type(value) is not kind:
            raise ValueError(f"config key {key!r}: got {value!r}, expected {kind.__name__}")
        if isinstance(value, int) and abs(value) > MOST_SIZE:
            raise ValueError(f"config key {key!r}: got a larger number, expected at most {MOST_SIZE}")
        return value

    def take_positive(self, key: str, kind: type[Number]) -> Number:
        """A required number above 0."""
        value: Number = self.take_key(key, kind)
        if not value > 0:
            raise ValueError(f"config key {key!r}: got {value}, expected more than 0")
        return value

    def take_tensor(self, names: tuple[str, ...], shape: tuple[int, ...]) -> Tensor:
        """The tensor stored under one of several public names, with its shape checked."""
        found = [name for name in names if name in self.tensors]
        if len(found) != 1:
            raise ValueError(
                f"tensor {' or '.join(names)}: found {len(found)}, expected 1 of shape {list(shape)}"
            )
        tensor = self.tensors.pop(found[0])
        if tuple(tensor.shape) != shape:
            raise ValueError(f"tensor {found[0]}: got shape {list(tensor.shape)}, expected {list(shape)}")
        return tensor

    def fill(
        self, module: nn.Module, names: Mapping[str, tuple[str, ...]], *, drafted: Collection[str] = ()
    ) -> None:
        """Load every parameter and buffer of `module`; `names` maps ours to the public spellings.

        Tables among `drafted` have a row per token of the drafter's vocabulary. A reduced one is spread over the target's:
        candidates carry target ids, so the rows of zeros in between are never read.
        """
        own = module.state_dict()
        missing = sorted(set(own) ^ set(names))
        assert not missing, f"tensor-name map and module disagree on {missing}"
        loaded = {
            ours: self._spread(public, tuple(own[ours].shape))
            if ours in drafted
            else self.take_tensor(public, tuple(own[ours].shape))
            for ours, public in names.items()
        }
        module.load_state_dict(
            {ours: tensor.to(own[ours].dtype) for ours, tensor in loaded.items()}, assign=True
        )

    def _spread(self, names: tuple[str, ...], shape: tuple[int, ...]) -> Tensor:
        if self.draft_ids_v is None:
            return self.take_tensor(names, shape)
        rows = self.take_tensor(names, (self.draft_ids_v.shape[0], *shape[1:]))
        return rows.new_zeros(shape).index_copy(0, self.draft_ids_v.to(rows.device), rows)
