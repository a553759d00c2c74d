"""A drafter and its head in, a folder in a layout that other engines load out.

`public` is the layout in which the head's authors publish: SGLang and vLLM load it. `speculators` is that of the package of
this name, which vLLM loads too and which has fewer heads.
"""

from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from speccorrect.length_head import LengthHead
from specmodels.checkpoint import speculators
from specmodels.checkpoint.files import SINGLE, TensorFolder, read_json, write_json, write_tensors
from specmodels.dflash import DFlash
from specmodels.qwen3 import Qwen3Config
from spectrain.heads import save_pair

LAYOUTS: Final = ("public", "speculators")

# xPress is the one head whose authors and the format call things by other names
_XPRESS_TENSORS: Final = {
    "xpress_head.w1.weight": "refiner_head.token_embed.weight",
    "xpress_head.w2.weight": "refiner_head.readout.weight",
    "xpress_head.down_h.weight": "refiner_head.down_h.weight",
    "xpress_head.down_g.weight": "refiner_head.down_g.weight",
    "xpress_head.in_proj.weight": "refiner_head.in_proj.weight",
    "xpress_head.mix.L": "refiner_head.mix_l",
    "xpress_head.mlp.gate_proj.weight": "refiner_head.mlp_gate.weight",
    "xpress_head.mlp.up_proj.weight": "refiner_head.mlp_up.weight",
    "xpress_head.mlp.down_proj.weight": "refiner_head.mlp_down.weight",
}


def export(
    drafter: DFlash,
    name: str,
    head: nn.Module,
    target: Qwen3Config,
    folder: Path,
    *,
    dtype: torch.dtype,
    layout: str = "public",
    verifier: str = "",
    length_head: LengthHead | None = None,
) -> None:
    """Write the pair; `verifier` names the target for those who read the folder."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout: got {layout!r}, expected one of {', '.join(LAYOUTS)}")
    if layout == "speculators" and length_head is not None:
        raise ValueError(
            "layout: the format of speculators has no head of lengths, expected a drafter without it"
        )
    save_pair(drafter, name, head, target, folder, dtype=dtype, length_head=length_head)
    if layout == "public":
        return
    kind = "dflash" if name == "none" else name
    config = speculators.from_zlab(read_json(folder / "config.json"), kind, verifier=verifier)
    if name == "xpress":
        config = _xpress_keys(config)
    files = TensorFolder(folder)
    tensors = {_XPRESS_TENSORS.get(key, key): value for key, value in files.read_each(sorted(files.names))}
    write_tensors(folder / SINGLE, tensors | _membership(drafter, target))
    write_json(folder / "config.json", config)


def _xpress_keys(config: dict[str, Any]) -> dict[str, Any]:
    kept = dict(config)
    width, rank = kept.pop("xpress_mlp_hidden"), kept["xpress_rank"]
    if width % rank:
        raise ValueError(
            f"layout: got an xPress mixer of width {width} over rank {rank}, expected a multiple of the rank"
        )
    return kept | {"xpress_mlp_ratio": width // rank, "num_jacobi_passes": kept.pop("xpress_num_passes")}


def _membership(drafter: DFlash, target: Qwen3Config) -> dict[str, Tensor]:
    """Which of the target's tokens a reduced vocabulary holds; its trainers want it beside the offsets."""
    if drafter.draft_to_target_v is None:
        return {}
    held = torch.zeros(target.vocab_size, dtype=torch.bool)
    held[drafter.draft_to_target_v.cpu()] = True
    return {"t2d": held}
