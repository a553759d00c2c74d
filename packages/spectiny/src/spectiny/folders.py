"""A model's name goes in, the folder with its files comes out."""

from importlib.resources import files
from pathlib import Path

MODELS = ("qwen3-tiny", "qwen3-tiny-dflash")
"""Names of the models of this package: the target and its drafter."""


def folder(name: str) -> Path:
    """Return the folder of a model, in the layout of the models on the hub."""
    if name not in MODELS:
        raise ValueError(f"folder: got model {name!r}, expected one of {', '.join(MODELS)}")
    path = Path(str(files("spectiny"))) / "data" / name
    if not path.is_dir():
        raise ValueError(
            f"folder: got no files for {name!r} in {path.parent}, expected a folder; reinstall spectiny"
        )
    return path
