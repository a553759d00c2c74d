"""The public layout of DFlash drafters: config keys and tensor names, both ways.

Keys that change no shape are never guessed: where a family of files leaves one out, the caller has to state it.
"""

from typing import Any, Final

import torch

from specmodels.checkpoint.keymap import Row, expand
from specmodels.checkpoint.keys import MOST_LAYERS, Keys
from specmodels.checkpoint.qwen3 import layer_rows, require_heads
from specmodels.checkpoint.rope import rope_from_keys, rope_to_json
from specmodels.dflash.config import ConvConfig, DFlashConfig, LayerKind
from specmodels.qwen3.config import Qwen3Config

# keys in these mappings count as if they stood at the top
SECTIONS: Final = ("dflash_config", "dspark_config")
# by any of these a file says which token a slot scores
LAYOUT_KEYS: Final = ("sample_from_anchor", "shift_label", "dspark_bonus_anchor")

# ours, theirs, another spelling of theirs
_OUTSIDE: Final = (
    ("fuse.weight", "fc.weight", "encoder.fc.weight"),
    ("context_norm.weight", "hidden_norm.weight", "encoder.output_norm_enc.weight"),
    ("norm.weight", "norm.weight", None),
    ("own_head.weight", "lm_head.weight", None),
)
_CONV: Final = (
    ("layers.{i}.attention_conv.base_kernel", "layers.{i}.attention_conv.base_kernel"),
    ("layers.{i}.attention_conv.projection.weight", "layers.{i}.attention_conv.kernel_projection.weight"),
    ("layers.{i}.mlp_conv.base_kernel", "layers.{i}.mlp_conv.base_kernel"),
    ("layers.{i}.mlp_conv.projection.weight", "layers.{i}.mlp_conv.kernel_projection.weight"),
)


def rows(config: DFlashConfig) -> dict[str, Row]:
    """The whole table of one drafter; `d2t` stands apart, because the files hold offsets and we hold ids."""
    layer = layer_rows(
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        inner=config.intermediate_size,
    )
    outside = tuple(
        Row(ours, (theirs,), aliases=() if alias is None else ((alias,),)) for ours, theirs, alias in _OUTSIDE
    )
    conv = tuple(Row(ours, (theirs,)) for ours, theirs in _CONV)
    return expand((*outside, *layer, *conv), len(config.layers))


def config_from_keys(keys: Keys, target: Qwen3Config) -> DFlashConfig:
    """The shape of a drafter for `target`; what the drafter cannot honour is an error, what heads own stays."""
    _refuse(keys)
    hidden, layers = keys.integer("hidden_size"), keys.integer("num_hidden_layers", most=MOST_LAYERS)
    positions = keys.integer("max_position_embeddings")
    target_hidden = keys.integer("target_hidden_size", default=hidden)
    _agree(keys, "target_hidden_size", target_hidden, target.hidden_size)
    # block rows are rows of the target's table, and its head projects the result
    _agree(keys, "hidden_size", hidden, target.hidden_size)
    _agree(keys, "vocab_size", keys.integer("vocab_size"), target.vocab_size)
    _agree(
        keys,
        "num_target_layers",
        keys.integer("num_target_layers", default=target.num_layers),
        target.num_layers,
    )
    softcap = keys.number("final_logit_softcapping", default=None)
    reduced = keys.integer("draft_vocab_size", default=target.vocab_size)
    rope = rope_from_keys(keys, max_positions=positions)
    shifted = _shifted(keys)
    config = DFlashConfig(
        hidden_size=hidden,
        intermediate_size=keys.integer("intermediate_size"),
        num_heads=keys.integer("num_attention_heads"),
        num_kv_heads=keys.integer("num_key_value_heads"),
        head_dim=keys.integer("head_dim"),
        norm_eps=keys.number("rms_norm_eps"),
        rope=rope,
        max_positions=rope.reach(positions),
        layers=_layers(keys, layers),
        attention_bias=keys.flag("attention_bias", default=False),
        block_size=_block_size(keys, shifted),
        mask_token_id=keys.integer("mask_token_id", "noise_token_id", "dspark_noise_token_id", least=0),
        target_layers=_target_layers(keys, target.num_layers, layers),
        target_hidden_size=target_hidden,
        shifted=shifted,
        embedding_scale=_positive(keys, "input_embedding_scale"),
        output_multiplier=_positive(keys, "output_multiplier"),
        softcap=None if softcap is None or softcap <= 0 else softcap,
        draft_vocab_size=None if reduced == target.vocab_size else reduced,
        conv=_conv(keys, hidden),
    )
    require_heads(keys.origin, config.num_heads, config.num_kv_heads, config.head_dim)
    if config.mask_token_id >= target.vocab_size:
        raise ValueError(
            f"{keys.origin}: mask_token_id: got {config.mask_token_id}, expected less than the target's "
            f"{target.vocab_size} embedding rows"
        )
    return config


def _refuse(keys: Keys) -> None:
    """Options that change what a drafter computes and that this one does not have."""
    keys.only("model_type", "qwen3", reason="only Qwen3-shaped drafters are supported")
    keys.only("quantization_config", reason="quantised weights are not supported")
    keys.only("hidden_act", "silu", reason="only the gated SiLU block is supported")
    keys.only("is_neox_style", True, reason="only half-split rotation is supported")
    keys.only("partial_rotary_factor", 1, 1.0, reason="partly rotated heads are not supported")
    keys.only("attention_sink_bias", False, reason="attention sinks are not supported")
    keys.only("attention_value_scale", 1, 1.0, reason="scaled values are not supported")
    keys.only("use_gemma_norm", False, reason="norm weights stored as w of (1 + w) are not supported")
    keys.only("logit_scale", 1, 1.0, reason="give it as output_multiplier if that is what it means")
    keys.only("mlp_bias", False, reason="biases in the feed-forward block are not supported")
    keys.only(
        "tie_word_embeddings", False, True, reason="it is true or false"
    )  # without effect: no own table
    keys.only("use_aux_hidden_state", True, reason="a drafter without target features is not supported")
    keys.take("mask_token", default=None)  # the id says it; see mask_token_id


def _agree(keys: Keys, name: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(
            f"{keys.origin}: {name}: got {found}, expected the target's {expected}; is it another model's?"
        )


def _positive(keys: Keys, name: str) -> float:
    value = keys.number(name, default=1.0)
    if value <= 0:
        raise ValueError(f"{keys.origin}: {name}: got {value}, expected a number above 0")
    return value


def _layers(keys: Keys, layers: int) -> tuple[LayerKind, ...]:
    kinds = keys.take("layer_types", default=None)
    window = keys.integer("sliding_window", default=None)
    swa_window = keys.integer("swa_window_size", default=None)
    everywhere = keys.flag("use_swa", default=False)
    use_window = keys.flag("use_sliding_window", default=None)
    causal = keys.flag("is_causal", "causal", default=None)
    if kinds is None:
        if use_window and not everywhere:
            raise ValueError(
                f"{keys.origin}: layer_types: missing with use_sliding_window; state the kind of each layer"
            )
        kinds = ["full_attention"] * layers
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise ValueError(f"{keys.origin}: layer_types: got {kinds!r}, expected a list of {layers}")
    unknown = sorted({str(kind) for kind in kinds} - {"full_attention", "sliding_attention"})
    if unknown:
        raise ValueError(
            f"{keys.origin}: layer_types: got {unknown[0]!r}, expected full_attention or sliding_attention"
        )
    if everywhere and "sliding_attention" not in kinds:
        kinds = ["sliding_attention"] * layers
    if use_window is False and "sliding_attention" in kinds:
        raise ValueError(
            f"{keys.origin}: use_sliding_window: got False with sliding layers, expected True or no key"
        )
    width = window if swa_window is None else swa_window
    if "sliding_attention" in kinds and width is None:
        raise ValueError(f"{keys.origin}: sliding_window: missing, expected the width of the sliding layers")
    return tuple(
        LayerKind(
            window=width if kind == "sliding_attention" else None,
            # the rule of the reference: said outright, or else sliding layers only
            causal=kind == "sliding_attention" if causal is None else causal,
        )
        for kind in kinds
    )


def _target_layers(keys: Keys, target_layers: int, layers: int) -> tuple[int, ...]:
    ids = keys.integers("target_layer_ids", "dspark_target_layer_ids", default=None)
    if ids is None:
        ids = default_target_layers(target_layers, layers)
    if not ids or len(set(ids)) != len(ids) or max(ids) >= target_layers:
        raise ValueError(
            f"{keys.origin}: target_layer_ids: got {list(ids)}, expected distinct layers below {target_layers}"
        )
    return ids


def default_target_layers(target_layers: int, layers: int) -> tuple[int, ...]:
    """The layers that a file without a list means: evenly from the second to the third last."""
    if layers == 1:
        return (target_layers // 2,)
    start, end = 1, target_layers - 3
    # Python rounds halves to even, and so did whoever trained the weights
    return tuple(round(start + index * (end - start) / (layers - 1)) for index in range(layers))


def _shifted(keys: Keys) -> bool:
    """Whether slot k scores the token after its own position; no tensor tells, so silence is trusted only where it is defined."""
    projector = keys.peek("projector_type")
    kinds = str(keys.peek("architectures"))
    needed = {
        "domino": "shift_label",
        "causal_v5": "shift_label",
        "dspark": "sample_from_anchor",
    }.get(projector if isinstance(projector, str) else "")
    if needed is None and ("DSpark" in kinds or "Domino" in kinds):
        needed = "sample_from_anchor" if "DSpark" in kinds else "shift_label"
    shifted = keys.flag("sample_from_anchor", "shift_label", default=None)
    bonus = keys.flag("dspark_bonus_anchor", default=None)
    if bonus is not None:
        if shifted is not None and shifted == bonus:
            raise ValueError(
                f"{keys.origin}: dspark_bonus_anchor: got {bonus}, expected the opposite of sample_from_anchor"
            )
        shifted = not bonus
    if shifted is None and needed is not None:
        raise ValueError(
            f"{keys.origin}: {needed}: missing, expected true or false: the layout of the slots; state it"
        )
    return bool(shifted)


def _block_size(keys: Keys, shifted: bool) -> int:
    """Rows of a block. xPress may name them for its mixer alone, or say how many tokens they draft."""
    size = keys.integer("block_size", "dspark_block_size", default=None, least=2)
    drafted = keys.integer("num_speculative_steps", default=None)
    mixed = keys.peek("xpress_block_size")  # the head takes it, and compares
    if size is None and isinstance(mixed, int) and mixed > 1:
        size = mixed
    if size is None and drafted is not None:
        size = drafted if shifted else drafted + 1
    if size is None:
        raise ValueError(
            f"{keys.origin}: block_size: missing, expected the rows of a block; add it to the file"
        )
    if drafted is not None and drafted != (size if shifted else size - 1):
        raise ValueError(
            f"{keys.origin}: num_speculative_steps: got {drafted}, expected {size if shifted else size - 1} "
            f"for a block of {size} rows"
        )
    return size


def _conv(keys: Keys, hidden: int) -> ConvConfig | None:
    taps = keys.integer("conv_kernel_size", default=0, least=0)
    group = keys.integer("conv_group_size", default=0, least=0)
    if not taps and not group:
        return None
    if not taps or not group or hidden % group:
        raise ValueError(
            f"{keys.origin}: conv_kernel_size and conv_group_size: got {taps} and {group}, expected both above 0 and a "
            f"group that divides {hidden}"
        )
    return ConvConfig(taps=taps, group=group)


def config_to_json(config: DFlashConfig, target: Qwen3Config, dtype: torch.dtype) -> dict[str, Any]:
    """`config.json` of a drafter folder in z-lab's layout."""
    causal = {kind.causal for kind in config.layers}
    windows = {kind.window for kind in config.layers if kind.window is not None}
    by_kind = all(kind.causal == (kind.window is not None) for kind in config.layers)
    if len(windows) > 1 or (len(causal) > 1 and not by_kind):
        raise ValueError(
            f"layers: got {config.layers}, expected one window, and one causal flag for all or by kind"
        )
    optional: dict[str, Any] = {}
    if config.embedding_scale != 1.0:
        optional["input_embedding_scale"] = config.embedding_scale
    if config.output_multiplier != 1.0:
        optional["output_multiplier"] = config.output_multiplier
    if config.softcap is not None:
        optional["final_logit_softcapping"] = config.softcap
    if config.shifted:
        optional["sample_from_anchor"] = True
    if config.conv is not None:
        optional |= {"conv_kernel_size": config.conv.taps, "conv_group_size": config.conv.group}
    name = str(dtype).removeprefix("torch.")
    return {
        "architectures": ["DFlashDraftModel" if config.conv is None else "DFlash2DraftModel"],
        "model_type": "qwen3",
        "vocab_size": target.vocab_size,
        **({} if config.draft_vocab_size is None else {"draft_vocab_size": config.draft_vocab_size}),
        "hidden_size": config.hidden_size,
        **(
            {}
            if config.target_hidden_size == config.hidden_size
            else {"target_hidden_size": config.target_hidden_size}
        ),
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": len(config.layers),
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_positions,
        "attention_bias": config.attention_bias,
        "num_target_layers": target.num_layers,
        "layer_types": [
            "full_attention" if kind.window is None else "sliding_attention" for kind in config.layers
        ],
        "sliding_window": max(windows, default=None),
        "use_sliding_window": bool(windows),
        **({} if by_kind else {"is_causal": causal.pop()}),
        "tie_word_embeddings": False,
        # the place of old readers and the place of new ones
        "block_size": config.block_size,
        "dflash_config": {
            "block_size": config.block_size,
            "mask_token_id": config.mask_token_id,
            "target_layer_ids": list(config.target_layers),
            **optional,
        },
        **rope_to_json(config.rope),
        "dtype": name,
        "torch_dtype": name,
    }
