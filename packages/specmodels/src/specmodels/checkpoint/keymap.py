"""Names of tensors, ours on the left and the public ones on the right: tables that work in both directions.

A right-hand side of several names is one matrix of ours stacked from them, top to bottom; a stack of matrices of ours
counts as one of all their rows. It knows no model.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; `{i}` stands for the number of a layer."""

    ours: str
    theirs: tuple[str, ...]
    parts: tuple[int, ...] = ()  # rows of each public tensor inside ours; empty when there is just one
    aliases: tuple[tuple[str, ...], ...] = ()  # other public spellings, accepted on load and never written

    def at(self, layer: int) -> "Row":
        """The line for one layer."""

        def named(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(name.replace("{i}", str(layer)) for name in names)

        return Row(
            self.ours.replace("{i}", str(layer)),
            named(self.theirs),
            self.parts,
            tuple(map(named, self.aliases)),
        )

    def shapes(self, shape: torch.Size, pieces: int) -> list[torch.Size]:
        """Shapes of the `pieces` public tensors that make up ours: its parts, or the whole where that is stored."""
        if pieces == 1:
            return [shape]
        width = shape[-1:] if len(shape) > 1 else ()
        return [torch.Size([part, *width]) for part in self.parts]


def expand(table: Iterable[Row], layers: int) -> dict[str, Row]:
    """The lines of all layers, by our name."""
    rows: dict[str, Row] = {}
    for row in table:
        for line in [row.at(layer) for layer in range(layers)] if "{i}" in row.ours else [row]:
            assert line.ours not in rows, line.ours
            rows[line.ours] = line
    return rows


def spelling(row: Row, present: Iterable[str]) -> tuple[str, ...]:
    """The public names of a line that a checkpoint uses; the main ones when it has none of them whole."""
    names = set(present)
    return next((names_ for names_ in (row.theirs, *row.aliases) if names.issuperset(names_)), row.theirs)


def to_public(rows: Mapping[str, Row], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors under public names, stacked matrices taken apart."""
    public: dict[str, Tensor] = {}
    for name, tensor in ours.items():
        row = rows[name]
        rows_of_all = tensor.flatten(0, -2) if tensor.ndim > 1 else tensor
        pieces = rows_of_all.split(list(row.parts)) if row.parts else (tensor,)
        public.update(zip(row.theirs, pieces, strict=True))
    return public
