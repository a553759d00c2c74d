"""The folders of the embedded family, under the names by which the engine finds them."""

from importlib.resources import files
from pathlib import Path

_TARGET = "qwen3-tiny"
_PLAIN = "dflash"  # the folder of the drafter without a correction head


def tiny() -> tuple[Path, dict[str, Path]]:
    """Return the target's folder, and the folders of its drafters by corrector.

    A folder counts once it holds a config: a checkout before training has the tokenizer alone.
    """
    data = Path(str(files("spectiny"))) / "data"
    drafters = {}
    for path in sorted(data.glob(f"{_TARGET}-*/config.json")):
        name = path.parent.name.removeprefix(f"{_TARGET}-")
        drafters["none" if name == _PLAIN else name] = path.parent
    return data / _TARGET, drafters
