"""Models that come with an installed package: the entry point group `specrun.models` in, their folders out."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedModel:
    """A model on this disk whose package gave it a name."""

    target: Path
    drafters: Mapping[str, Path]  # by corrector


def embedded_models() -> dict[str, EmbeddedModel]:
    """The models of installed packages by name."""
    found = {}
    for point in entry_points(group="specrun.models"):
        target, drafters = point.load()()
        found[point.name] = EmbeddedModel(target=target, drafters=drafters)
    return found
