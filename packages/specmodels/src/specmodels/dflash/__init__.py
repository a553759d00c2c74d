"""The DFlash block-diffusion drafter."""

from specmodels.dflash.config import ConvConfig, DFlashConfig, LayerKind
from specmodels.dflash.mask import BlockRows, block_mask, sees
from specmodels.dflash.model import DFlash

__all__ = ["BlockRows", "ConvConfig", "DFlash", "DFlashConfig", "LayerKind", "block_mask", "sees"]
