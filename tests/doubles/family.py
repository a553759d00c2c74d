"""A random target and drafter in folders of the public layouts, with the tokenizer of the embedded family."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

import spectiny
from specmodels import save_drafter, save_llada2, save_target

from doubles.tiny import dflash_config, llada2_config, qwen3_config, tiny_drafter, tiny_llada2, tiny_target

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
    _add_tokenizer(family.target)
    return family


class DiffusionFamily(NamedTuple):
    model: Path
    drafter: Path


def write_diffusion_family(folder: Path) -> DiffusionFamily:
    """Two models that denoise blocks, a larger and a smaller one, with the same tokenizer."""
    family = DiffusionFamily(folder / "flash", folder / "mini")
    config = llada2_config(vocab_size=2048, max_positions=MAX_POSITIONS, mask_token_id=2047)
    save_llada2(tiny_llada2(config, seed=3), family.model)
    save_llada2(tiny_llada2(replace(config, num_layers=2), seed=4), family.drafter)
    for path in family:
        _add_tokenizer(path)
    return family


def _add_tokenizer(folder: Path) -> None:
    tokenizer = Path(spectiny.__file__).parent / "data" / "qwen3-tiny"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(tokenizer / name, folder / name)
