"""What a user may set: how to sample one request, and how an engine drafts and verifies."""

from dataclasses import dataclass
from typing import Literal

AcceptRule = Literal["match", "reject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The law and the end of one generation. Raises ValueError for values outside their range."""

    max_new_tokens: int = 256  # at least 0
    temperature: float = 0.0  # 0 is greedy
    top_k: int = 0  # 0 keeps all
    top_p: float = 1.0  # in (0, 1]
    min_p: float = 0.0  # in [0, 1]
    repetition_penalty: float = 1.0  # above 0; on prompt and output
    presence_penalty: float = 0.0  # on the output
    frequency_penalty: float = 0.0  # on the output
    seed: int = 0  # any 64-bit integer
    stop: tuple[str, ...] = ()  # texts that end the generation and are cut off
    stop_ids: tuple[int, ...] | None = None  # token ids that end it; None takes the model's own

    def __post_init__(self) -> None:
        _check("max new tokens", self.max_new_tokens, self.max_new_tokens >= 0, "at least 0")
        _check("temperature", self.temperature, 0 <= self.temperature <= 1e6, "a number from 0 to a million")
        _check("top-k", self.top_k, self.top_k >= 0, "at least 0 (0 keeps all)")
        _check("top-p", self.top_p, 0 < self.top_p <= 1, "a number above 0 and at most 1")
        _check("min-p", self.min_p, 0 <= self.min_p <= 1, "a number from 0 to 1")
        _check(
            "repetition penalty",
            self.repetition_penalty,
            0 < self.repetition_penalty < float("inf"),
            "above 0",
        )
        for name, value in (("presence", self.presence_penalty), ("frequency", self.frequency_penalty)):
            _check(f"{name} penalty", value, abs(value) < float("inf"), "a finite number")
        _check("seed", self.seed, -(2**63) <= self.seed < 2**63, "a 64-bit integer")
        _check("stop", self.stop, all(self.stop), "texts of at least one character")

    @property
    def filters(self) -> bool:
        return bool(self.top_k) or self.top_p < 1 or self.min_p > 0

    @property
    def penalties(self) -> bool:
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftOptions:
    """How much is drafted and how it is accepted; None takes the method's own default."""

    block_size: int | None = (
        None  # rows of a block, anchor included; at most what the drafter was trained with
    )
    tree_budget: int | None = None  # drafted nodes of a tree, the anchor not counted
    accept: AcceptRule | None = None
    draft_temperature: float | None = (
        None  # 0 drafts the most probable token; only chains under reject use it
    )
    couple: float | None = None  # trust of trees in the target's own noise above temperature 0; 0 is off
    policy: str | None = None  # how much of a proposal is verified: a name or name=number; None is all of it


def _check(what: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise ValueError(f"{what}: got {value}, expected {expected}")
