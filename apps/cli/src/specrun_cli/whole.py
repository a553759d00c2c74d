"""A folder that appears under its name when it is whole, or not at all."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def empty_place(name: str) -> Path:
    """Where a folder may be written: nothing is there yet, or an empty folder."""
    folder = Path(name).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"output: got {name!r}, expected a folder that is empty or not there yet")
    return folder


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to write into; it gets the name when the block ends without an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as part:
        written = Path(part) / "whole"
        written.mkdir()
        yield written
        if folder.exists():
            folder.rmdir()
        written.rename(folder)
