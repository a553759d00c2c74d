"""Checkpoint folders in public layouts: strict loading, and saving as its inverse."""

from specmodels.checkpoint.load import DrafterCheckpoint, load_drafter, load_llada2, load_target
from specmodels.checkpoint.save import save_drafter, save_llada2, save_target

__all__ = [
    "DrafterCheckpoint",
    "load_drafter",
    "load_llada2",
    "load_target",
    "save_drafter",
    "save_llada2",
    "save_target",
]
