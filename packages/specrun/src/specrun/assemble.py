"""Names to a ready engine: resolve, load, claim the head, check that all of it belongs together."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
from specrun.auto import AUTO, POLICY, choose, refuse_options
from specrun.calibration import read_calibration
from specrun.catalogue import catalogue
from specrun.config import DraftOptions
from specrun.costs import CostTable
from specrun.embedded import embedded_models
from specrun.engine import Engine
from specrun.measure import known_costs
from specrun.methods import PLAIN, Method
from specrun.methods import method as find_method
from specrun.store import machine, weights
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
    reads costs has them measured once, which takes some seconds; they are kept on this disk. Method auto tries the
    model's drafters once, takes the fastest, and decodes plainly where none pays.
    """
    chosen = None if method == AUTO else find_method(method)
    torch_dtype = dtype_on(device, dtype)
    folder = target_folder(model, offline=offline)
    if chosen is not None and chosen.growth == "plain" and draft is not None:
        raise ValueError(f"draft: has no effect with method {chosen.name}, which drafts nothing")
    if target is None:
        target = load_target(folder, device=device, dtype=torch_dtype)
    opener = _Opener(model=model, draft=draft, folder=folder, target=target, offline=offline)
    if chosen is None:
        return _auto_engine(opener, options or DraftOptions())
    return opener.engine(chosen, options or DraftOptions())


@dataclass(slots=True, kw_only=True)
class _Opener:
    """A loaded target, and engines around it. The drafter that was loaded last is kept for the next method."""

    model: str | Path
    draft: str | Path | None
    folder: Path
    target: Qwen3
    offline: bool
    _loaded: "_Drafting | None" = None

    def drafting(self, method: Method) -> "_Drafting":
        """The drafter of a method."""
        if self._loaded is None or self._loaded.corrector != method.corrector:
            folder, stated = _drafter_folder(self.model, method, self.draft, offline=self.offline)
            self._loaded = None  # frees its memory before the next one comes
            self._loaded = _load_drafter(folder, stated, method, self.target)
        return self._loaded

    def named_drafting(self, draft: str | Path) -> "_Drafting":
        """The drafter of that name with the head that it carries."""
        folder, stated = _drafter_folder(self.model, find_method("dflash"), draft, offline=self.offline)
        self._loaded = _load_drafter(folder, stated, None, self.target)
        return self._loaded

    def engine(self, method: Method, options: DraftOptions, costs: CostTable | None = None) -> Engine:
        """An engine with a method; costs that its policy reads are looked up, or measured, unless they are given."""
        parts = self.parts(method)
        if method.growth != "plain" and options.policy is not None and length_policy(options.policy).priced:
            costs_of = partial(self.costs, method, replace(options, policy=None))
            parts |= {"costs": costs or costs_of(1), "costs_of": costs_of}
        return Engine(self.target, method, options=options, **parts)

    def costs(self, method: Method, options: DraftOptions, batch: int) -> CostTable:
        """What rounds of a batch cost that verify all that is drafted, or less."""
        drafted = self.drafting(method).folder
        untrimmed = Engine(self.target, method, options=options, **self.parts(method))
        return known_costs(untrimmed, self.folder, drafted, batch=batch)

    def parts(self, method: Method) -> dict[str, Any]:
        """What an engine needs beside target, method and options."""
        tokenizer = Tokenizer(self.folder)
        if tokenizer.size > self.target.config.vocab_size:
            raise ValueError(
                f"tokenizer: {self.folder} knows {tokenizer.size} ids, expected at most the"
                f" {self.target.config.vocab_size} rows of the model; do the files belong together?"
            )
        parts: dict[str, Any] = {
            "tokenizer": tokenizer,
            "template": template_of(self.folder),
            "stop_ids": read_stop_ids(self.folder),
        }
        if method.growth != "plain":
            drafting = self.drafting(method)
            parts |= {
                "drafter": drafting.drafter,
                "corrector": drafting.head,
                "length_head": drafting.length_head,
                "calibration": read_calibration(drafting.folder, self.target.embedding.device),
            }
        return parts


def _auto_engine(opener: _Opener, options: DraftOptions) -> Engine:
    refuse_options(options)
    opener.parts(PLAIN)  # what is wrong with them should show before a trial
    offered = _offered(opener)
    if not offered:
        engine = opener.engine(PLAIN, DraftOptions())
        engine.chosen = f"plain decoding: no drafter is known for {opener.model}"
        return engine
    embedding = opener.target.embedding
    described = {
        **machine(embedding.device, embedding.dtype),
        "target": weights(opener.folder),
        "drafters": {corrector: weights(folder) for corrector, folder in sorted(offered.items())},
    }
    choice = choose(tuple(offered), described, opener.engine)
    best = find_method(choice.best.method)
    settled = DraftOptions(policy=POLICY)
    costs_of = partial(opener.costs, best, DraftOptions())
    parts = opener.parts(best)
    engine = Engine(
        opener.target,
        best,
        options=settled,
        costs=costs_of(1),
        costs_of=costs_of,
        fallback=choice.fallback,
        **parts,
    )
    engine.chosen = choice.why
    return engine


def _offered(opener: _Opener) -> dict[str, Path]:
    """Drafters by corrector: the named one, or all of the model's that are on this disk, or the one to download."""
    model = str(opener.model)
    if opener.draft is not None:
        drafting = opener.named_drafting(opener.draft)
        return {drafting.corrector: drafting.folder}
    here = {
        corrector: offer.folder
        for listed in catalogue()
        if listed.name == model
        for corrector, offer in listed.drafters.items()
        if offer.folder is not None
    }
    if here or model not in KNOWN_MODELS:
        return here
    plain = find_method("dflash")
    return {"none": drafter_folder(opener.model, plain, offline=opener.offline)}


def target_folder(model: str | Path, *, offline: bool = False) -> Path:
    """Where a target lies."""
    embedded = {name: item.target for name, item in embedded_models().items()}
    return resolve(model, offline=offline, embedded=embedded)


def drafter_folder(
    model: str | Path, method: Method, draft: str | Path | None = None, *, offline: bool = False
) -> Path:
    """Where the drafter lies that a method gets: the named one, or the known one."""
    return _drafter_folder(model, method, draft, offline=offline)[0]


class _Drafting(NamedTuple):
    """What a drafter's folder held."""

    folder: Path
    corrector: str
    drafter: DFlash
    head: nn.Module
    length_head: LengthHead | None


def _load_drafter(
    folder: Path, stated: Mapping[str, Any] | None, method: Method | None, target: Qwen3
) -> _Drafting:
    """A drafter with the head that a method needs, or with whatever head it carries."""
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
    if method is not None and method.corrector == "none":
        name, head = claim_head(HeadSource(shape))
    elif method is not None and name != method.corrector:
        raise ValueError(
            f"draft: {folder} carries {'no head' if name == 'none' else f'the head {name}'}, expected {method.corrector}"
            f" for method {method.name}; choose another method or name another drafter"
        )
    for part in (head, length_head):
        if part is not None:
            part.to(device=device, dtype=dtype).eval().requires_grad_(requires_grad=False)
    return _Drafting(folder, name, drafter, head, length_head)


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
