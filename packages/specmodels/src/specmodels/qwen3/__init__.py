"""Qwen3 targets, with the Llama form as configuration."""

from specmodels.qwen3.config import Qwen3Config
from specmodels.qwen3.model import DecoderOutput, Qwen3

__all__ = ["DecoderOutput", "Qwen3", "Qwen3Config"]
