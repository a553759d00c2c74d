"""Weight files: a folder in, its tensors one by one out; and back.

The one file that knows the safetensors format. Nothing is read before it is asked for.
"""

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"

MOST_TEXT: Final = 64 * 2**20
"""Bytes of a JSON or template file: three times the largest tokenizer of a public model."""

MOST_HEADER: Final = 16 * 2**20
"""Bytes of a safetensors header: room for some hundred thousand tensors."""


class TensorFolder:
    """The tensors of a folder with one `model.safetensors`, or with shards and an index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file_of = _files_of_tensors(folder)

    @property
    def names(self) -> frozenset[str]:
        """Names of all tensors as they stand in the files."""
        return frozenset(self._file_of)

    @property
    def numbers(self) -> int:
        """How many numbers all tensors hold together, from the files' headers."""
        total = 0
        for path in sorted(set(self._file_of.values())):
            with _opened(path) as handle:
                total += sum(math.prod(handle.get_slice(name).get_shape()) for name in handle.keys())  # noqa: SIM118 - not a dict
        return total

    def read(self, name: str) -> Tensor:
        """One tensor in its stored dtype, on the CPU."""
        with _opened(self._file_of[name]) as handle:
            return handle.get_tensor(name)

    def read_each(self, names: list[str]) -> Iterator[tuple[str, Tensor]]:
        """Several tensors, file by file, so that each file is opened once."""
        by_file: dict[Path, list[str]] = {}
        for name in names:
            by_file.setdefault(self._file_of[name], []).append(name)
        for path, group in by_file.items():
            with _opened(path) as handle:
                for name in group:
                    yield name, handle.get_tensor(name)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or a ValueError that says what is wrong with the file."""
    text = read_text(path)
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not readable as JSON ({error}); download the file again") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: got a JSON {type(value).__name__}, expected an object")  # noqa: TRY004 - a user's file
    return value


def read_text(path: Path) -> str:
    """A text file of a model, unless it is larger than any such file has a reason to be."""
    if not path.is_file():
        raise ValueError(f"{path.name}: missing in {path.parent}; expected a model folder that holds it")
    size = path.stat().st_size
    if size > MOST_TEXT:
        raise ValueError(f"{path}: got {size} bytes, expected at most {MOST_TEXT}; is it the right file?")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not readable as UTF-8 ({error}); download the file again") from error


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object so that the file is either whole or not there."""
    with _replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write one safetensors file so that it is either whole or not there."""
    # safetensors refuses views and shared memory; a clone costs one copy of the file in memory
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with _replacing(path) as temporary:
        save_file(plain, temporary, metadata={"format": "pt"})


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)  # mkstemp makes files that only their owner can read
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _files_of_tensors(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise ValueError(
            f"model folder {folder}: missing; expected a folder with config.json and safetensors files"
        )
    if (folder / INDEX).is_file():
        return _sharded(folder)
    if (folder / SINGLE).is_file():
        return dict.fromkeys(_names_in(folder / SINGLE), folder / SINGLE)
    others = sorted(
        path.name for path in folder.iterdir() if path.suffix in {".safetensors", ".bin", ".pth", ".gguf"}
    )
    found = ", ".join(others) if others else "no weight file"
    raise ValueError(
        f"{folder}: got {found}, expected {SINGLE} or {INDEX}; convert the weights to safetensors"
    )


def _sharded(folder: Path) -> dict[str, Path]:
    listed = read_json(folder / INDEX).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(shard, str) for shard in listed.values()):
        raise ValueError(f"{folder / INDEX}: got no weight_map, expected one from tensor names to files")
    shards = sorted(set(listed.values()))
    for shard in shards:
        if shard in {"", ".", ".."} or set(shard) & set("/\\") or not shard.isprintable() or len(shard) > 200:
            raise ValueError(
                f"{folder / INDEX}: got the file {shard!r:.120}, expected names of files in that folder; do not use this model"
            )
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise ValueError(
            f"{folder}: missing {len(missing)} of {len(shards)} shards, first {missing[0]}; download the model again"
        )
    stored = {name: shard for shard in shards for name in _names_in(folder / shard)}
    if stored != listed:
        name = min(set(stored.items()) ^ set(listed.items()))[0]
        raise ValueError(
            f"{folder}: {name} is in {stored.get(name, 'no shard')} but the index says {listed.get(name, 'nothing')}; "
            "download the model again"
        )
    return {name: folder / shard for name, shard in listed.items()}


def _names_in(path: Path) -> list[str]:
    with _opened(path) as handle:
        return list(handle.keys())


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    _require_header(path)
    try:
        handle = safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise ValueError(_complaint(path, error)) from error
    with handle as opened:
        yield opened


def _require_header(path: Path) -> None:
    """Refuse a file that is cut short or none of this format before its header is read."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        opening = stream.read(1)
    size = path.stat().st_size
    if 8 + length > size and opening == b"{":
        raise ValueError(
            f"{path}: truncated, got {size} bytes, expected at least {8 + length}; download it again"
        )
    if opening != b"{" or length > MOST_HEADER:
        raise ValueError(
            f"{path}: unreadable header, got a file that is not in safetensors format; download it again"
        )


def _complaint(path: Path, error: Exception) -> str:
    """Why a file with a header does not open: its data cut short, or the header wrong."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = stream.read(length)
    try:
        entries = json.loads(header)
        ends = [entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"]
        needed = 8 + length + max(ends)
        if size < needed:
            return f"{path}: truncated, got {size} bytes, expected {needed}; download it again"
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        pass
    return f"{path}: unreadable header ({error}); download it again"


def dtype_of(name: str, origin: str) -> torch.dtype:
    """The floating dtype that a configuration names."""
    names = {
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
        "float32": torch.float32,
        "float64": torch.float64,
    }
    if name.removeprefix("torch.") not in names:
        raise ValueError(f"{origin}: dtype: got {name!r}, expected one of {', '.join(names)}")
    return names[name.removeprefix("torch.")]
