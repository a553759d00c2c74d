"""Names to a ready engine: resolve, load, claim the head, check that all of it belongs together."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from speccorrect.length_head import LengthHead, take_length_head
from speccorrect.policy import length_policy
from speccorrect.registry import claim_head
from speccorrect.source import HeadShape, HeadSource
from specmodels import (
    DFlash,
    Qwen3,
    known_drafter,
    load_drafter,
    load_target,
    read_chat_template,
    read_stop_ids,
    resolve,
)
from specmodels.known import KNOWN_MODELS
from specrun.calibration import read_calibration
from specrun.config import DraftOptions
from specrun.embedded import embedded_models
from specrun.engine import Engine
from specrun.measure import known_costs
from specrun.methods import Method
from specrun.methods import method as find_method
from specrun.tokens import Tokenizer

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def load_engine(
    model: str | Path,
    method: str = "dflash",
    *,
    draft: str | Path | None = None,
    device: str = "cpu",
    dtype: str | None = None,
    options: DraftOptions | None = None,
    offline: bool = False,
    target: Qwen3 | None = None,
) -> Engine:
    """An engine for a known name, a folder or `owner/name[@revision]`, with the drafter that the method needs.

    `dtype` None takes the checkpoint's own on CUDA and float32 on the CPU, where narrow types are slow.
    `target` is the model itself where it is loaded already: another method then costs no second one. A policy that
    reads costs has them measured once, which takes some seconds; they are kept on this disk.
    """
    chosen = find_method(method)
    torch_dtype = dtype_on(device, dtype)
    folder = target_folder(model, offline=offline)
    if chosen.growth == "plain" and draft is not None:
        raise ValueError(f"draft: has no effect with method {chosen.name}, which drafts nothing")
    if target is None:
        target = load_target(folder, device=device, dtype=torch_dtype)
    drafter, head, length_head, calibration = None, None, None, None
    if chosen.growth != "plain":
        folder_of_draft, stated = _drafter_folder(model, chosen, draft, offline=offline)
        drafter, head, length_head = _load_drafter(folder_of_draft, stated, chosen, target)
        calibration = read_calibration(folder_of_draft, device)
    tokenizer = Tokenizer(folder)
    if tokenizer.size > target.config.vocab_size:
        raise ValueError(
            f"tokenizer: {folder} knows {tokenizer.size} ids, expected at most the {target.config.vocab_size} rows of"
            " the model; do the files belong together?"
        )
    parts: dict[str, Any] = {
        "drafter": drafter,
        "corrector": head,
        "tokenizer": tokenizer,
        "template": template_of(folder),
        "stop_ids": read_stop_ids(folder),
        "calibration": calibration,
        "length_head": length_head,
    }
    priced = options is not None and options.policy is not None and length_policy(options.policy).priced
    if priced and options is not None and chosen.growth != "plain":
        untrimmed = Engine(target, chosen, options=replace(options, policy=None), **parts)
        parts["costs"] = known_costs(untrimmed, folder, folder_of_draft)
    return Engine(target, chosen, options=options, **parts)


def target_folder(model: str | Path, *, offline: bool = False) -> Path:
    """Where a target lies."""
    embedded = {name: item.target for name, item in embedded_models().items()}
    return resolve(model, offline=offline, embedded=embedded)


def drafter_folder(
    model: str | Path, method: Method, draft: str | Path | None = None, *, offline: bool = False
) -> Path:
    """Where the drafter lies that a method gets: the named one, or the known one."""
    return _drafter_folder(model, method, draft, offline=offline)[0]


def _load_drafter(
    folder: Path, stated: Mapping[str, Any] | None, method: Method, target: Qwen3
) -> tuple[DFlash, nn.Module, LengthHead | None]:
    device, dtype = target.embedding.device, target.embedding.dtype
    checkpoint = load_drafter(
        folder, target.config, device=device, dtype=dtype, stated=stated
    ).without_copies(target)
    drafter = checkpoint.drafter
    shape = HeadShape(
        hidden_size=drafter.config.hidden_size,
        vocab_size=target.config.vocab_size,
        block_size=drafter.config.block_size,
        shifted=drafter.config.shifted,
        norm_eps=drafter.config.norm_eps,
        layout_stated=checkpoint.layout_stated,
    )
    source = HeadSource(
        shape,
        dict(checkpoint.leftover_config),
        dict(checkpoint.leftover_tensors),
        drafter.draft_to_target_v,
    )
    try:
        length_head = take_length_head(source)
        name, head = claim_head(source)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    # whatever neither the drafter nor the head took is reported by name
    checkpoint.claimed(
        tensors=checkpoint.leftover_tensors.keys() - source.tensors.keys(),
        keys=checkpoint.leftover_config.keys() - source.config.keys(),
    ).finish()
    if method.corrector == "none":
        _, head = claim_head(HeadSource(shape))
    elif name != method.corrector:
        raise ValueError(
            f"draft: {folder} carries {'no head' if name == 'none' else f'the head {name}'}, expected {method.corrector}"
            f" for method {method.name}; choose another method or name another drafter"
        )
    for part in (head, length_head):
        if part is not None:
            part.to(device=device, dtype=dtype).eval().requires_grad_(requires_grad=False)
    return drafter, head, length_head


def _drafter_folder(
    model: str | Path, method: Method, draft: str | Path | None, *, offline: bool
) -> tuple[Path, Mapping[str, Any] | None]:
    assert method.corrector is not None, "plain decoding has no drafter"
    embedded = embedded_models()
    if draft is not None:
        inside = {
            f"{name}-{corrector}": folder
            for name, item in embedded.items()
            for corrector, folder in item.drafters.items()
        }
        return inside.get(str(draft)) or resolve(draft, offline=offline), stated_by(str(draft))
    if str(model) in embedded:
        drafters = embedded[str(model)].drafters
        if method.corrector not in drafters:
            raise ValueError(
                f"method: {method.name} needs a drafter with the head {method.corrector}, expected one of {', '.join(drafters)}"
                f" for the model {model}; name one with --draft"
            )
        return drafters[method.corrector], None
    if str(model) not in KNOWN_MODELS:
        raise ValueError(
            f"draft: none is known for {model}, expected a folder or owner/name; name one with --draft"
        )
    known = known_drafter(str(model), "dflash" if method.corrector == "none" else method.corrector)
    return resolve(known.repo, revision=known.revision, offline=offline), known.stated


def stated_by(draft: str) -> Mapping[str, Any] | None:
    """What the files of a known repository leave unsaid, by whichever revision it is named."""
    known = [drafter for model in KNOWN_MODELS.values() for drafter in model.drafters.values()]
    return next((drafter.stated for drafter in known if drafter.repo == draft.partition("@")[0]), None)


def template_of(folder: Path) -> Any:
    """The chat template, or the reason why there is none, to be raised when one is asked for."""
    try:
        return read_chat_template(folder)
    except ValueError as error:
        return error


def dtype_on(device: str, dtype: str | None) -> torch.dtype | None:
    """The dtype of a name; None stands for the checkpoint's own."""
    if dtype is None:
        return torch.float32 if device == "cpu" else None
    if dtype not in DTYPES:
        raise ValueError(f"dtype: got {dtype!r}, expected one of {', '.join(DTYPES)}")
    return DTYPES[dtype]
