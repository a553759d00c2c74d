"""A random target and drafter in folders of the public layouts, with the tokenizer of the embedded family."""

import shutil
from pathlib import Path
from typing import NamedTuple

import torch

import spectiny
from specmodels import save_drafter, save_target

from doubles.tiny import dflash_config, qwen3_config, tiny_drafter, tiny_target

MAX_POSITIONS = 256


class Family(NamedTuple):
    target: Path
    drafter: Path


def write_family(folder: Path) -> Family:
    """Write both folders; the text of such a model is noise, with many characters of several bytes."""
    family = Family(folder / "target", folder / "drafter")
    config = qwen3_config(vocab_size=2048, max_positions=MAX_POSITIONS)
    save_target(tiny_target(config, seed=3), family.target, dtype=torch.float32)
    save_drafter(tiny_drafter(config, dflash_config(config)), config, family.drafter, dtype=torch.float32)
    tokenizer = Path(spectiny.__file__).parent / "data" / "qwen3-tiny"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(tokenizer / name, family.target / name)
    return family
