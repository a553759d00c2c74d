"""Checkpoint folders in public layouts: strict loading, and saving as its inverse."""

from specmodels.checkpoint.files import TensorFolder
from specmodels.checkpoint.load import (
    DrafterCheckpoint,
    drafter_form,
    load_drafter,
    load_llada2,
    load_target,
    target_form,
)
from specmodels.checkpoint.save import save_drafter, save_llada2, save_target

__all__ = [
    "DrafterCheckpoint",
    "TensorFolder",
    "drafter_form",
    "load_drafter",
    "load_llada2",
    "load_target",
    "save_drafter",
    "save_llada2",
    "save_target",
    "target_form",
]
