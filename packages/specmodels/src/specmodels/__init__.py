"""Target and drafter models, their key-value cache, and the loading of their checkpoints.

What needs torch is imported when it is first used: a list of models should not have to wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from specmodels.hub import HubState, cached, hub_state, resolve
from specmodels.known import KNOWN_MODELS, KnownDrafter, KnownModel, known_drafter, known_model

if TYPE_CHECKING:
    from specmodels.checkpoint import (
        DrafterCheckpoint,
        load_drafter,
        load_llada2,
        load_target,
        save_drafter,
        save_llada2,
        save_target,
    )
    from specmodels.dflash import DFlash, DFlashConfig
    from specmodels.kv import CacheMemory, ContextMemory, RowsMemory, StaticKV
    from specmodels.llada2 import Llada2, Llada2Config
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
    "HubState",
    "KnownDrafter",
    "KnownModel",
    "Llada2",
    "Llada2Config",
    "Qwen3",
    "Qwen3Config",
    "RowsMemory",
    "StaticKV",
    "cached",
    "conversation",
    "hub_state",
    "known_drafter",
    "known_model",
    "load_drafter",
    "load_llada2",
    "load_target",
    "read_chat_template",
    "read_special_tokens",
    "read_stop_ids",
    "resolve",
    "save_drafter",
    "save_llada2",
    "save_target",
]

_LATER = {
    "CacheMemory": "kv",
    "ChatTemplate": "template",
    "ContextMemory": "kv",
    "DFlash": "dflash",
    "DFlashConfig": "dflash",
    "DrafterCheckpoint": "checkpoint",
    "Llada2": "llada2",
    "Llada2Config": "llada2",
    "Qwen3": "qwen3",
    "Qwen3Config": "qwen3",
    "RowsMemory": "kv",
    "StaticKV": "kv",
    "conversation": "template",
    "load_drafter": "checkpoint",
    "load_llada2": "checkpoint",
    "load_target": "checkpoint",
    "read_chat_template": "template",
    "read_special_tokens": "template",
    "read_stop_ids": "template",
    "save_drafter": "checkpoint",
    "save_llada2": "checkpoint",
    "save_target": "checkpoint",
}

if not TYPE_CHECKING:  # a checker would take every misspelt name for one of these

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__} has no attribute {name}")
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
