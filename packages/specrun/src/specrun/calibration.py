"""What `calibrate` measured of a drafter, stored beside its weights: a file in, tables out, and back."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from speccorrect.couple import Coupling

FILE = "calibration.json"

_TABLES = {"trust": "trust_KX", "noise": "noise_KX", "other": "other_KX"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Measured on trajectories of one target; it only changes drafts, never the text."""

    coupling: Coupling
    draft_temperature: float  # that accepts most under reject; 0 where the most probable token does
    acceptance: tuple[
        float, ...
    ]  # of the greedy chain: share accepted at each depth, of those that reached it
    documents: int  # trajectories it rests on
    temperature: float  # of those trajectories

    def save(self, folder: Path) -> None:
        """Write the file whole or not at all."""
        tables = {name: getattr(self.coupling, field).tolist() for name, field in _TABLES.items()}
        text = json.dumps(
            {
                "borders": self.coupling.border_E.tolist(),
                **tables,
                "draft_temperature": self.draft_temperature,
                "acceptance": list(self.acceptance),
                "documents": self.documents,
                "temperature": self.temperature,
            },
            indent=1,
        )
        partial = folder / f"{FILE}.partial"
        partial.write_text(text + "\n")
        partial.replace(folder / FILE)


def read_calibration(folder: Path, device: torch.device | str) -> Calibration | None:
    """The calibration of a drafter's folder; None where it has none. A file that is not one is a ValueError."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        held: dict[str, Any] = json.loads(path.read_text())
        tables = {field: _table(held[name], device) for name, field in _TABLES.items()}
        border_E = torch.tensor(held["borders"], dtype=torch.float32, device=device)
        coupling = Coupling(border_E=border_E, **tables)
        shape = (coupling.slots, len(border_E) + 1)
        if any(tuple(table.shape) != shape for table in tables.values()):
            raise ValueError(
                f"tables of {[list(table.shape) for table in tables.values()]}, expected {list(shape)}"
            )
        return Calibration(
            coupling=coupling,
            draft_temperature=float(held["draft_temperature"]),
            acceptance=tuple(map(float, held["acceptance"])),
            documents=int(held["documents"]),
            temperature=float(held["temperature"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"calibration: {path}: {error}; calibrate again or delete the file") from error


def _table(rows: Any, device: torch.device | str) -> torch.Tensor:
    table = torch.tensor(rows, dtype=torch.float32, device=device)
    if table.ndim != 2:
        raise ValueError(f"a table of shape {list(table.shape)}, expected [depths, bins]")
    return table
