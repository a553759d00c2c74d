"""What a round costs on one machine, by the rows it verifies and by the length of its context: a table, and its reading.

The table is data; `specrun.measure` fills it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from speccorrect.policy import Costs

NO_COSTS = Costs(seconds_T=torch.zeros(0))
"""For policies that read none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTable:
    """Seconds of a round of `batch` requests, by context (cache rows) and width (rows verified of every request).

    A batch of another size is read by the rows that it verifies in all.
    """

    batch: int
    contexts: tuple[int, ...]  # rising
    widths: tuple[int, ...]  # rising, from 1
    round: tuple[tuple[float, ...], ...]  # [context][width] of a whole round that drafts
    plain: tuple[float, ...]  # [context] of a round of plain decoding
    stages: Mapping[str, tuple[tuple[float, ...], ...]]  # [context][width] of its parts, for people
    _read: dict[tuple[int, int, int, torch.device], Costs] = field(
        default_factory=dict, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        shape = (len(self.contexts), len(self.widths))
        if not (self.widths and self.widths[0] == 1 and self.contexts):
            raise ValueError(
                f"costs: got widths {self.widths} at contexts {self.contexts}, expected some from 1 on"
            )
        for table in (self.round, *self.stages.values()):
            if (len(table), *{len(row) for row in table}) != shape:
                raise ValueError(
                    f"costs: got a table of {[len(row) for row in table]}, expected {list(shape)}"
                )
        if len(self.plain) != shape[0] or not all(
            second > 0 for row in (*self.round, self.plain) for second in row
        ):
            raise ValueError("costs: expected seconds above 0 at every context and width")

    def as_json(self) -> dict[str, Any]:
        """The table in plain lists and numbers."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.init and item.repr}

    @classmethod
    def from_json(cls, held: Mapping[str, Any]) -> "CostTable":
        """Raises KeyError, TypeError or ValueError for anything that is no table."""
        return cls(
            batch=int(held["batch"]),
            contexts=tuple(map(int, held["contexts"])),
            widths=tuple(map(int, held["widths"])),
            round=_rows(held["round"]),
            plain=tuple(map(float, held["plain"])),
            stages={str(name): _rows(table) for name, table in held["stages"].items()},
        )

    def at(self, context: int, rows: int, batch: int, device: torch.device) -> Costs:
        """Costs of rounds up to `rows` rows of every request; contexts and widths in between by straight lines."""
        key = (context, rows, batch, device)
        if key not in self._read:
            line = [self.seconds(context, total) for total in range(1, rows * batch + 1)]
            self._read[key] = Costs(seconds_T=torch.tensor(line, device=device))
        return self._read[key]

    def seconds(self, context: int, total: float) -> float:
        """Seconds of a round that drafts and verifies `total` rows of all requests together."""
        by_width = [_between(self.contexts, column, context) for column in zip(*self.round, strict=True)]
        return _between([width * self.batch for width in self.widths], by_width, total)

    def plain_at(self, context: int) -> float:
        """Seconds of a round of plain decoding."""
        return _between(self.contexts, self.plain, context)


def _rows(table: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in table)


def _between(places: Sequence[int], values: Sequence[float], place: float) -> float:
    """The value at a place, by the line through its neighbours; outside, the nearest value and no less than that."""
    if place <= places[0] or len(places) == 1:
        return values[0]
    upper = next((index for index, known in enumerate(places) if known >= place), len(places) - 1)
    (left, right), (low, high) = places[upper - 1 : upper + 1], values[upper - 1 : upper + 1]
    value = low + (high - low) * (place - left) / (right - left)
    return value if place <= places[-1] else max(value, high)
