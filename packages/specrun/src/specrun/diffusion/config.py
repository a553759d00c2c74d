"""What a user may set of block diffusion: how blocks are decoded, and how a draft is revised."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from specmodels.llada2.mask import BLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How a block goes from masks to tokens. Raises ValueError for values outside their range."""

    block: int = BLOCK  # positions of a block, aligned to position 0 of the text
    mask_threshold: float = 0.7  # a mask becomes its best token if that is more probable than this
    edit_threshold: float | None = 0.5  # a token becomes a better one that is; 0 edits always, None never
    edit_steps: int = 16  # passes at most over a block without masks
    least: int = 1  # masks that become tokens in a pass, however improbable
    reopened: int = 1  # last blocks that are edited together once the newest is done; 1 is the newest alone
    reopened_steps: int = 5  # passes at most over reopened blocks

    def __post_init__(self) -> None:
        _check("block", self.block, self.block >= 1, "at least 1")
        _threshold("mask threshold", self.mask_threshold)
        _threshold("edit threshold", self.edit_threshold)
        _check("edit steps", self.edit_steps, self.edit_steps >= 0, "at least 0")
        _check("least", self.least, self.least >= 1, "at least 1")
        _check("reopened", self.reopened, self.reopened >= 1, "at least 1 block")
        _check("reopened steps", self.reopened_steps, self.reopened_steps >= 1, "at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """How a complete draft is revised. Raises ValueError for values outside their range."""

    ahead: int | None = (
        None  # later blocks that a row sees beside all earlier ones; None is all, 0 is as in decoding
    )
    edit_threshold: float = 0.9  # a token becomes a better one that is more probable than this
    steps: int = 8  # passes at most; 0 leaves the draft as it is
    most_edits: int | None = None  # edits of a pass, the most probable first; None is all
    open_tail: bool = False  # whether what lies behind the end of the draft may change: answers can grow
    remask: float = 0.0  # share of the draft, the least sure first, that is masked and found again

    def __post_init__(self) -> None:
        _check("refine ahead", self.ahead, self.ahead is None or self.ahead >= 0, "at least 0 blocks")
        _threshold("refine threshold", self.edit_threshold)
        _check("refine steps", self.steps, self.steps >= 0, "at least 0")
        _check("most edits", self.most_edits, self.most_edits is None or self.most_edits >= 1, "at least 1")
        _check("remask", self.remask, 0 <= self.remask <= 1, "a share from 0 to 1")


def _threshold(what: str, value: float | None) -> None:
    _check(what, value, value is None or 0 <= value <= 1, "a probability from 0 to 1")


def _check(what: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise ValueError(f"{what}: got {value}, expected {expected}")


PRESETS: Final = MappingProxyType(
    {
        "quality": Decoding(),
        "speed": Decoding(mask_threshold=0.5, edit_threshold=0.0),
        "careful": Decoding(mask_threshold=0.95, edit_threshold=0.9),
    }
)
"""The settings that the authors publish under the first two names, and the defaults of their code."""
