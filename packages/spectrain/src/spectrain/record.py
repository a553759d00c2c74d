"""A run's settings go in, the record that lets somebody repeat it comes out as JSON."""

import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

import torch


def write_record(
    path: Path, *, seed: int, data: Mapping[str, str], sources: Iterable[Path], **settings: object
) -> None:
    """Write commit, command, versions, seed, hashes of data and sources, and the settings of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "commit": commit(),
        "sources": source_hash(sources),
        "command": " ".join(sys.argv),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "spectrain": version("spectrain"),
        },
        "threads": torch.get_num_threads(),
        "seed": seed,
        "data": dict(data),
        **settings,
    }
    path.write_text(json.dumps(record, indent=2, default=str) + "\n", encoding="utf-8")


def commit() -> str:
    """The commit that is checked out here, or "none"; the hash of the sources tells what ran in either case."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "none"


def source_hash(folders: Iterable[Path]) -> str:
    """Sixteen hexadecimal digits over the Python files of some folders: they tell changed files from the commit's."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
