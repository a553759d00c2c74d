"""A folder in, a model with its weights out: built without memory, filled strictly.

Every tensor and every config key is claimed by exactly one part; whatever is missing, left over, of another shape or of
another kind is a ValueError that names the key, what we expected and what the folder holds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from specmodels.checkpoint import dflash as dflash_layout
from specmodels.checkpoint import llada2 as llada2_layout
from specmodels.checkpoint import qwen3 as qwen3_layout
from specmodels.checkpoint import speculators
from specmodels.checkpoint.files import TensorFolder, dtype_of, read_json
from specmodels.checkpoint.keymap import Row, spelling
from specmodels.checkpoint.keys import Keys, require_none_left
from specmodels.dflash.model import DFlash
from specmodels.layers.rope import Rope
from specmodels.llada2.model import Llada2
from specmodels.qwen3.config import Qwen3Config
from specmodels.qwen3.model import Qwen3

Model = TypeVar("Model", bound=nn.Module)
Value = TypeVar("Value")

_FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def target_form(folder: Path, *, dtype: torch.dtype | None = None) -> Qwen3:
    """A target without its weights, on the meta device: every size and no memory."""
    keys = Keys(read_json(folder / "config.json"), str(folder / "config.json"))
    dtype = _dtype(keys, dtype)
    config = qwen3_layout.config_from_keys(keys)
    keys.finish()
    with torch.device("meta"):
        return Qwen3(config).to(dtype)


def load_target(
    folder: Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Qwen3:
    """A Qwen3 or Llama target for inference; `dtype` None keeps what the config names."""
    model = target_form(folder, dtype=dtype)
    config, dtype = model.config, model.embedding.dtype
    source = _Source(folder)
    # some tools write the head a second time where it is tied
    if config.tie_embeddings:
        source.drop_copy("lm_head.weight", of="embed_tokens.weight")
    tensors = source.claim(dict(model.state_dict()), qwen3_layout.rows(config), device=device, dtype=dtype)
    _require_no_tensors(source.left(), str(folder))
    return _filled(model, tensors, device=device, dtype=dtype)


def load_llada2(
    folder: Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Llada2:
    """A LLaDA2 model for inference; `dtype` None keeps what the config names. Its routers keep at least fp32."""
    keys = Keys(read_json(folder / "config.json"), str(folder / "config.json"))
    dtype = _dtype(keys, dtype)
    config = llada2_layout.config_from_keys(keys)
    keys.finish()
    with torch.device("meta"):
        model = Llada2(config)
    source = _Source(folder, prefixes=("model.language_model.", "model."))
    state, rows = model.state_dict(), llada2_layout.rows(config)
    routers = {name: tensor for name, tensor in state.items() if llada2_layout.ROUTER in name}
    others = {name: tensor for name, tensor in state.items() if name not in routers}
    wide = torch.promote_types(dtype, torch.float32)
    tensors = source.claim(routers, rows, device=device, dtype=wide)
    tensors |= source.claim(others, rows, device=device, dtype=dtype)
    _require_no_tensors(source.left(), str(folder))
    return _filled(model, tensors, device=device, dtype=dtype)


@dataclass(frozen=True, slots=True)
class DrafterCheckpoint:
    """A drafter and what its folder holds beyond it: the tensors and config keys of a correction head.

    A head takes its share with `claimed`, which returns what then remains; `finish` raises unless nothing does.
    """

    drafter: DFlash
    leftover_tensors: Mapping[
        str, Tensor
    ]  # by the names of the file, a leading "model." dropped; stored dtype, CPU
    leftover_config: Mapping[
        str, Any
    ]  # keys of `dflash_config` and `dspark_config` stand beside those of the top level
    layout_stated: bool  # whether the file or the caller said which token a slot scores, and not silence
    origin: str  # the folder, for messages

    def claimed(self, *, tensors: Iterable[str] = (), keys: Iterable[str] = ()) -> "DrafterCheckpoint":
        """Without the named tensors and keys; naming one that is not there (any more) is an error."""
        return replace(
            self,
            leftover_tensors=_without(self.leftover_tensors, tensors, f"{self.origin}: tensor"),
            leftover_config=_without(self.leftover_config, keys, f"{self.origin}: config key"),
        )

    def without_copies(self, target: Qwen3) -> "DrafterCheckpoint":
        """Drop the embedding table and head that some trainers save along, after checking that they are the target's."""
        copies = {"embed_tokens.weight": target.embedding, "lm_head.weight": target.head_VD}
        present = [name for name in copies if name in self.leftover_tensors]
        for name in present:
            ours = copies[name].detach().cpu()
            if not torch.equal(self.leftover_tensors[name].to(ours.dtype), ours):
                raise ValueError(
                    f"{self.origin}: {name}: got other values than the target's, expected a copy; "
                    "drafters with a table of their own are not supported"
                )
        return self.claimed(tensors=present)

    def finish(self) -> DFlash:
        """The drafter, once every tensor and key has found its part."""
        _require_no_tensors(self.leftover_tensors, self.origin)
        require_none_left(self.leftover_config, self.origin)
        return self.drafter


def drafter_form(
    folder: Path,
    target: Qwen3Config,
    *,
    dtype: torch.dtype | None = None,
    stated: Mapping[str, Any] | None = None,
) -> DFlash:
    """A drafter without its weights and its head, on the meta device: every size and no memory."""
    return _drafter_form(folder, target, dtype, stated)[0]


def _drafter_form(
    folder: Path, target: Qwen3Config, dtype: torch.dtype | None, stated: Mapping[str, Any] | None
) -> tuple[DFlash, Keys, bool]:
    """Beside the drafter: the keys that are left, and whether the layout was stated."""
    origin = folder / "config.json"
    public = read_json(origin)
    if speculators.applies(public):
        public = speculators.to_zlab(public, str(origin), stated)
    keys = Keys(public, str(origin), sections=dflash_layout.SECTIONS, stated=stated)
    layout_stated = keys.has(*dflash_layout.LAYOUT_KEYS)
    dtype = _dtype(keys, dtype)
    config = dflash_layout.config_from_keys(keys, target)
    if (folder / "mask_embedding.pt").exists():
        raise ValueError(f"{folder}: mask_embedding.pt: a separate mask row is not supported")
    with torch.device("meta"):
        return DFlash(config).to(dtype), keys, layout_stated


def load_drafter(
    folder: Path,
    target: Qwen3Config,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    stated: Mapping[str, Any] | None = None,
) -> DrafterCheckpoint:
    """A DFlash drafter for a target; `stated` says what a file leaves unsaid, such as `sample_from_anchor`."""
    model, keys, layout_stated = _drafter_form(folder, target, dtype, stated)
    config, dtype = model.config, next(model.parameters()).dtype
    source = _Source(folder)
    source.drop("t2d")  # the membership mask says nothing that d2t does not
    wanted = dict(model.state_dict())
    ids = None
    if config.draft_vocab_size is not None:
        del wanted["draft_to_target_v"]
        ids = _absolute_ids(source, config.draft_vocab_size, target.vocab_size)
    else:
        source.drop_zeros("d2t")
    tensors = source.claim(wanted, dflash_layout.rows(config), device=device, dtype=dtype)
    if ids is not None:
        tensors["draft_to_target_v"] = ids.to(device)
    return DrafterCheckpoint(
        drafter=_filled(model, tensors, device=device, dtype=dtype),
        leftover_tensors=source.left(),
        leftover_config=keys.left(),
        layout_stated=layout_stated,
        origin=str(folder),
    )


class _Source:
    """The tensors of a folder that nobody has claimed yet."""

    def __init__(self, folder: Path, *, prefixes: tuple[str, ...] = ("model.",)) -> None:
        """Of the `prefixes`, the first that a name has is dropped from it."""
        self.files = TensorFolder(folder)
        self.origin = str(folder)
        self._file_name: dict[str, str] = {}
        for name in sorted(self.files.names):
            # a rotary table is computed, never loaded; old tools saved it with the weights
            if name.endswith("rotary_emb.inv_freq"):
                continue
            prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), "")
            bare = name.removeprefix(prefix)
            if bare in self._file_name:
                raise ValueError(
                    f"{folder}: {bare}: got it as {self._file_name[bare]} and as {name}, expected it once"
                )
            self._file_name[bare] = name

    def drop(self, name: str) -> None:
        """Forget a tensor that holds no information of its own."""
        self._file_name.pop(name, None)

    def drop_copy(self, name: str, *, of: str) -> None:
        """Forget a tensor that has to be the same as another one."""
        if name not in self._file_name or of not in self._file_name:
            return
        if not torch.equal(self.files.read(self._file_name[name]), self.files.read(self._file_name[of])):
            raise ValueError(
                f"{self.origin}: {name}: got other values than {of}, expected the same; the config ties them"
            )
        self.drop(name)

    def drop_zeros(self, name: str) -> None:
        """Forget offsets of a vocabulary that is the target's own."""
        if name not in self._file_name:
            return
        if bool(self.files.read(self._file_name[name]).any()):
            raise ValueError(
                f"{self.origin}: {name}: got offsets, expected none or zeros: config.json names no reduced "
                "draft_vocab_size"
            )
        self.drop(name)

    def take(self, name: str) -> Tensor:
        """Claim one tensor by its public name, as it is stored."""
        if name not in self._file_name:
            raise ValueError(
                f"{self.origin}: {name}: missing, expected it in the weights; is the folder complete?"
            )
        return self.files.read(self._file_name.pop(name))

    def claim(
        self,
        wanted: Mapping[str, Tensor],
        rows: Mapping[str, Row],
        *,
        device: torch.device | str,
        dtype: torch.dtype,
    ) -> dict[str, Tensor]:
        """Tensors for all of `wanted` (ours, of the right shape) in a dtype and on a device."""
        names = {ours: spelling(rows[ours], self._file_name) for ours in wanted}
        missing = [(name, ours) for ours in wanted for name in names[ours] if name not in self._file_name]
        if missing:
            name, ours = missing[0]
            raise ValueError(
                f"{self.origin}: {name}: missing ({len(missing)} of the expected tensors are), expected it for "
                f"{ours} {_shape(wanted[ours])}"
            )
        pieces: dict[str, Tensor] = {}
        owner = {name: ours for ours in wanted for name in names[ours]}
        by_file_name = {self._file_name[name]: name for name in owner}
        expected = {
            name: shape
            for ours in wanted
            for name, shape in zip(
                names[ours], rows[ours].shapes(wanted[ours].shape, len(names[ours])), strict=True
            )
        }
        result: dict[str, Tensor] = {}
        for file_name, stored in self.files.read_each(list(by_file_name)):
            name = by_file_name[file_name]
            ours = owner[name]
            self._check(name, ours, stored, expected[name])
            pieces[name] = self._finite(name, stored.to(device=device, dtype=dtype))
            if all(part in pieces for part in names[ours]):
                parts = [pieces.pop(part) for part in names[ours]]
                whole = parts[0] if len(parts) == 1 else torch.cat(parts)
                result[ours] = whole.view(wanted[ours].shape)
            del self._file_name[name]
        return result

    def _check(self, name: str, ours: str, stored: Tensor, shape: torch.Size) -> None:
        if stored.shape != shape:
            raise ValueError(
                f"{self.origin}: {name}: got shape {list(stored.shape)}, expected {list(shape)} for {ours}; "
                "do config.json and the weights belong together?"
            )
        if stored.dtype not in _FLOATS:
            raise ValueError(
                f"{self.origin}: {name}: got {stored.dtype}, expected a floating type for {ours}; "
                "quantised weights are not supported"
            )

    def _finite(self, name: str, tensor: Tensor) -> Tensor:
        if not bool(tensor.isfinite().all()):
            raise ValueError(
                f"{self.origin}: {name}: got values that are not finite in {tensor.dtype}; "
                "choose a wider dtype or download the file again"
            )
        return tensor

    def left(self) -> dict[str, Tensor]:
        """The tensors that nobody claimed."""
        return {name: self.files.read(file_name) for name, file_name in sorted(self._file_name.items())}


def _absolute_ids(source: _Source, rows: int, target_rows: int) -> Tensor:
    """Target ids of a reduced vocabulary; files hold the distance of each from its own index."""
    offsets = source.take("d2t")
    if offsets.dtype not in {torch.int64, torch.int32} or list(offsets.shape) != [rows]:
        raise ValueError(
            f"{source.origin}: d2t: got {list(offsets.shape)} of {offsets.dtype}, expected [{rows}] of torch.int64"
        )
    ids = offsets.long() + torch.arange(rows)
    if bool((ids < 0).any()) or bool((ids >= target_rows).any()) or bool((ids.diff() <= 0).any()):
        raise ValueError(
            f"{source.origin}: d2t: got ids that do not rise within 0 .. {target_rows - 1}, expected offsets from "
            "each row's own index; does the file hold ids instead?"
        )
    return ids


def _dtype(keys: Keys, dtype: torch.dtype | None) -> torch.dtype:
    stated = keys.text("dtype", "torch_dtype", default=None)
    if dtype is not None:
        return dtype
    if stated is None:
        raise ValueError(f"{keys.origin}: dtype or torch_dtype: missing, expected a name; pass a dtype")
    return dtype_of(stated, keys.origin)


def _filled(
    model: Model, tensors: dict[str, Tensor], *, device: torch.device | str, dtype: torch.dtype
) -> Model:
    model.load_state_dict(tensors, strict=True, assign=True)
    for module in model.modules():
        if isinstance(module, Rope):
            module.place(device=device, dtype=dtype)
    return model.requires_grad_(requires_grad=False).eval()


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))


def _without(values: Mapping[str, Value], names: Iterable[str], what: str) -> dict[str, Value]:
    remaining = dict(values)
    for name in names:
        if name not in remaining:
            raise ValueError(
                f"{what} {name}: not there or claimed already, expected one of {sorted(remaining)}"
            )
        del remaining[name]
    return remaining


def _require_no_tensors(tensors: Mapping[str, Tensor], origin: str) -> None:
    if tensors:
        listed = ", ".join(f"{name} {_shape(tensor)}" for name, tensor in list(tensors.items())[:4])
        raise ValueError(
            f"{origin}: {len(tensors)} unexpected tensor(s): {listed}; expected tensors that the config announces"
        )
