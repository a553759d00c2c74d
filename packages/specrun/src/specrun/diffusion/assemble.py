"""Names to a ready engine of block diffusion: resolve, load, check that all of it belongs together."""

import json
from pathlib import Path

import torch

from specmodels import load_llada2, read_stop_ids, resolve
from specmodels.llada2 import Llada2
from specrun.assemble import dtype_on, template_of
from specrun.diffusion.config import Decoding, Refinement
from specrun.diffusion.engine import DiffusionEngine
from specrun.diffusion.methods import DIFFUSION_METHODS
from specrun.embedded import embedded_models
from specrun.tokens import Tokenizer


def load_diffusion_engine(
    model: str | Path,
    method: str = "draft-refine",
    *,
    draft: str | Path | None = None,
    device: str = "cpu",
    dtype: str | None = None,
    decoding: Decoding | None = None,
    refinement: Refinement | None = None,
    offline: bool = False,
) -> DiffusionEngine:
    """An engine for a known name, a folder or `owner/name[@revision]`; `draft` names a smaller model that writes drafts.

    `dtype` None takes the checkpoint's own on CUDA and float32 on the CPU, where narrow types are slow.
    """
    if method not in DIFFUSION_METHODS:
        raise ValueError(f"method: got {method!r}, expected one of {', '.join(DIFFUSION_METHODS)}")
    if not DIFFUSION_METHODS[method].refines and draft is not None:
        raise ValueError(f"draft: has no effect with method {method}; use draft-refine")
    torch_dtype = dtype_on(device, dtype)
    folder = _folder(model, offline=offline)
    tokenizer = Tokenizer(folder)
    loaded = load_llada2(folder, device=device, dtype=torch_dtype)
    if tokenizer.size > loaded.config.vocab_size:
        raise ValueError(
            f"tokenizer: {folder} knows {tokenizer.size} ids, expected at most the {loaded.config.vocab_size} rows of"
            " the model; do the files belong together?"
        )
    return DiffusionEngine(
        loaded,
        DIFFUSION_METHODS[method],
        drafter=None if draft is None else _drafter(draft, folder, device, torch_dtype, offline=offline),
        tokenizer=tokenizer,
        template=template_of(folder),
        stop_ids=read_stop_ids(folder),
        decoding=decoding,
        refinement=refinement,
    )


def _folder(source: str | Path, *, offline: bool) -> Path:
    embedded = {name: item.target for name, item in embedded_models().items()}
    return resolve(source, offline=offline, embedded=embedded)


def _drafter(
    draft: str | Path, folder: Path, device: str, dtype: torch.dtype | None, *, offline: bool
) -> Llada2:
    """A model whose drafts the other can read: ids are handed over as they are."""
    theirs = _folder(draft, offline=offline)
    if _vocabulary(theirs) != _vocabulary(folder):
        raise ValueError(
            f"draft: {draft} has another tokenizer than the model, expected the same; name a model of its family"
        )
    return load_llada2(theirs, device=device, dtype=dtype)


def _vocabulary(folder: Path) -> object:
    path = folder / "tokenizer.json"
    return json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"] if path.is_file() else None
