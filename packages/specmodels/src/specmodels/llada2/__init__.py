"""LLaDA2: a mixture-of-experts model that denoises blocks of tokens."""

from specmodels.llada2.config import Llada2Config
from specmodels.llada2.mask import BLOCK, block_causal
from specmodels.llada2.model import Llada2

__all__ = ["BLOCK", "Llada2", "Llada2Config", "block_causal"]
