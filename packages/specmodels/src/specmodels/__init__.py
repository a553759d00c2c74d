"""Target and drafter models, their key-value cache, and the loading of their checkpoints."""

from specmodels.checkpoint import DrafterCheckpoint, load_drafter, load_target, save_drafter, save_target
from specmodels.dflash import DFlash, DFlashConfig
from specmodels.hub import resolve
from specmodels.known import KNOWN_MODELS, KnownDrafter, KnownModel, known_drafter, known_model
from specmodels.kv import CacheMemory, ContextMemory, RowsMemory, StaticKV
from specmodels.qwen3 import Qwen3, Qwen3Config
from specmodels.template import (
    ChatTemplate,
    conversation,
    read_chat_template,
    read_special_tokens,
    read_stop_ids,
)

__all__ = [
    "KNOWN_MODELS",
    "CacheMemory",
    "ChatTemplate",
    "ContextMemory",
    "DFlash",
    "DFlashConfig",
    "DrafterCheckpoint",
    "KnownDrafter",
    "KnownModel",
    "Qwen3",
    "Qwen3Config",
    "RowsMemory",
    "StaticKV",
    "conversation",
    "known_drafter",
    "known_model",
    "load_drafter",
    "load_target",
    "read_chat_template",
    "read_special_tokens",
    "read_stop_ids",
    "resolve",
    "save_drafter",
    "save_target",
]
