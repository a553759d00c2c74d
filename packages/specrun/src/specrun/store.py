"""What was measured on this machine, kept on its disk: a description in, the numbers that were stored for it out.

A description holds everything that the numbers depend on, versions included; under another one nothing is found. A file
that cannot be read is as good as none: it is measured again.
"""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


def folder() -> Path:
    """Where the files lie: `specrun` in the user's own cache."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "specrun"


def machine(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """What stands for the machine in a description."""
    on_cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device)
        if on_cuda
        else platform.processor() or platform.machine(),
        "host": platform.node(),
        "dtype": str(dtype),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "specrun": version("specrun"),
    }


def weights(place: Path) -> dict[str, Any]:
    """What stands for the weights in a folder: names, sizes and times of its files, which are cheap to look at."""
    files = sorted(path for path in place.iterdir() if path.suffix in {".json", ".safetensors"})
    stats = {path.name: path.stat() for path in files}
    return {
        "folder": str(place.resolve()),
        "files": {name: [one.st_size, one.st_mtime_ns] for name, one in stats.items()},
    }


def read(kind: str, described: Mapping[str, Any]) -> Any:
    """What was stored for a description; None where nothing was."""
    try:
        held = json.loads(_path(kind, described).read_text())
    except (OSError, ValueError):
        return None
    return held["found"] if isinstance(held, dict) and held.get("described") == described else None


def write(kind: str, described: Mapping[str, Any], found: object) -> None:
    """Store what was measured, whole or not at all; a disk that takes nothing is no reason to stop."""
    path = _path(kind, described)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps({"described": described, "found": found}, indent=1) + "\n")
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink()


def _path(kind: str, described: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    return folder() / f"{kind}-{digest[:20]}.json"
