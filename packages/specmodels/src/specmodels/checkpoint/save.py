"""A model in, a folder in a public layout out: the inverse of loading."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specmodels.checkpoint import dflash as dflash_layout
from specmodels.checkpoint import llada2 as llada2_layout
from specmodels.checkpoint import qwen3 as qwen3_layout
from specmodels.checkpoint.files import SINGLE, write_json, write_tensors
from specmodels.checkpoint.keymap import to_public
from specmodels.dflash.model import DFlash
from specmodels.llada2.model import Llada2
from specmodels.qwen3.config import Qwen3Config
from specmodels.qwen3.model import Qwen3


def save_target(model: Qwen3, folder: Path, *, dtype: torch.dtype | None = None) -> None:
    """Write the `config.json` and weights of a Hugging Face Qwen3 or Llama folder; None keeps the model's dtype."""
    dtype = model.embedding.dtype if dtype is None else dtype
    config = qwen3_layout.config_to_json(model.config, dtype)
    _write(folder, config, to_public(qwen3_layout.rows(model.config), _cast(model.state_dict(), dtype)))


def save_llada2(model: Llada2, folder: Path, *, dtype: torch.dtype | None = None) -> None:
    """Write the `config.json` and weights of a LLaDA2 folder; routers stay as they are."""
    dtype = model.embedding.dtype if dtype is None else dtype
    state = model.state_dict()
    routers = {name: tensor for name, tensor in state.items() if llada2_layout.ROUTER in name}
    tensors = {**_cast(state, dtype), **routers}
    _write(
        folder,
        llada2_layout.config_to_json(model.config, dtype),
        to_public(llada2_layout.rows(model.config), tensors),
    )


def save_drafter(
    model: DFlash, target: Qwen3Config, folder: Path, *, dtype: torch.dtype | None = None
) -> None:
    """Write the `config.json` and weights of a DFlash folder in z-lab's layout; None keeps the model's dtype."""
    dtype = model.fuse.weight.dtype if dtype is None else dtype
    config = dflash_layout.config_to_json(model.config, target, dtype)
    ours = _cast(model.state_dict(), dtype)
    ids = ours.pop("draft_to_target_v", None)
    public = to_public(dflash_layout.rows(model.config), ours)
    if ids is not None:
        public["d2t"] = ids - torch.arange(ids.shape[0], device=ids.device)
    write_tensors(folder / SINGLE, public)
    write_json(folder / "config.json", config)


def _write(folder: Path, config: dict[str, Any], public: dict[str, Tensor]) -> None:
    """A folder of a whole model: every tensor but the head stands under `model.`."""
    names = {name: name if name == "lm_head.weight" else f"model.{name}" for name in public}
    write_tensors(folder / SINGLE, {names[name]: tensor for name, tensor in public.items()})
    write_json(folder / "config.json", config)


def _cast(tensors: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()
    }
