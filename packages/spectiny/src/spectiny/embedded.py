"""The folders of the embedded family, under the names by which the engine finds them."""

from importlib.resources import files
from pathlib import Path

_TARGET = "qwen3-tiny"
_LLADA = "llada-tiny"
_PLAIN = "dflash"  # the folder of the drafter without a correction head


def tiny() -> tuple[Path, dict[str, Path]]:
    """Return the target's folder, and the folders of its drafters by corrector.

    A folder counts once it holds a config: a checkout before training has the tokenizer alone.
    """
    data = _data()
    drafters = {}
    for path in sorted(data.glob(f"{_TARGET}-*/config.json")):
        name = path.parent.name.removeprefix(f"{_TARGET}-")
        drafters["none" if name == _PLAIN else name] = path.parent
    return data / _TARGET, drafters


def tiny_llada() -> tuple[Path, dict[str, Path]]:
    """Return the folder of the larger block-diffusion model; it has no drafters of the autoregressive kind."""
    return _data() / _LLADA, {}


def tiny_llada_mini() -> tuple[Path, dict[str, Path]]:
    """Return the folder of the smaller block-diffusion model."""
    return _data() / f"{_LLADA}-mini", {}


def _data() -> Path:
    return Path(str(files("spectiny"))) / "data"
