"""The public layout of Qwen3 and Llama folders: config keys and tensor names, both ways."""

from typing import Any, Final

import torch

from specmodels.checkpoint.keymap import Row, expand
from specmodels.checkpoint.keys import MOST_LAYERS, Keys
from specmodels.checkpoint.rope import rope_from_keys, rope_to_json
from specmodels.qwen3.config import Qwen3Config

# ours, theirs; a leading "model." of theirs is dropped on load
_LAYER: Final = (
    ("layers.{i}.attention_norm.weight", "layers.{i}.input_layernorm.weight"),
    ("layers.{i}.attention.output.weight", "layers.{i}.self_attn.o_proj.weight"),
    ("layers.{i}.attention.output.bias", "layers.{i}.self_attn.o_proj.bias"),
    ("layers.{i}.attention.query_norm.weight", "layers.{i}.self_attn.q_norm.weight"),
    ("layers.{i}.attention.key_norm.weight", "layers.{i}.self_attn.k_norm.weight"),
    ("layers.{i}.mlp_norm.weight", "layers.{i}.post_attention_layernorm.weight"),
    ("layers.{i}.mlp.down.weight", "layers.{i}.mlp.down_proj.weight"),
    ("layers.{i}.mlp.down.bias", "layers.{i}.mlp.down_proj.bias"),
)
_OUTSIDE: Final = (
    ("embedding", "embed_tokens.weight"),
    ("norm.weight", "norm.weight"),
    ("untied_head.weight", "lm_head.weight"),
)


def layer_rows(*, heads: int, kv_heads: int, head_dim: int, inner: int) -> tuple[Row, ...]:
    """The lines of one layer, the stacked matrices among them; the DFlash drafter has the same layers."""
    query, kv = heads * head_dim, kv_heads * head_dim
    stacked: list[Row] = []
    for kind in ("weight", "bias"):
        attention, mlp = "layers.{i}.self_attn.", "layers.{i}.mlp."
        stacked += [
            Row(
                f"layers.{{i}}.attention.qkv.{kind}",
                (f"{attention}q_proj.{kind}", f"{attention}k_proj.{kind}", f"{attention}v_proj.{kind}"),
                (query, kv, kv),
                ((f"{attention}qkv_proj.{kind}",),),
            ),
            Row(
                f"layers.{{i}}.mlp.gate_up.{kind}",
                (f"{mlp}gate_proj.{kind}", f"{mlp}up_proj.{kind}"),
                (inner, inner),
                ((f"{mlp}gate_up_proj.{kind}",),),
            ),
        ]
    return (*(Row(ours, (theirs,)) for ours, theirs in _LAYER), *stacked)


def rows(config: Qwen3Config) -> dict[str, Row]:
    """The whole table of one target; lines of parts that this target lacks are simply not used."""
    layer = layer_rows(
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        inner=config.intermediate_size,
    )
    return expand((*(Row(ours, (theirs,)) for ours, theirs in _OUTSIDE), *layer), config.num_layers)


def config_from_keys(keys: Keys) -> Qwen3Config:
    """The shape of a target from the keys of its `config.json`; other architectures and options are errors."""
    kind = keys.text("model_type")
    if kind not in {"qwen3", "llama"}:
        raise ValueError(f"{keys.origin}: model_type: got {kind!r}, expected qwen3 or llama")
    keys.only("quantization_config", reason="quantised weights are not supported; use the unquantised model")
    keys.only("hidden_act", "silu", reason="only the gated SiLU block is supported")
    keys.only("use_sliding_window", False, reason="targets with sliding windows are not supported")
    keys.only("layer_types_pattern", reason="only full attention is supported")
    keys.take("sliding_window", default=None)  # without use_sliding_window it has no effect
    hidden, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    layers = keys.integer("num_hidden_layers", most=MOST_LAYERS)
    kinds = keys.take("layer_types", default=["full_attention"] * layers)
    if kinds != ["full_attention"] * layers:
        raise ValueError(f"{keys.origin}: layer_types: got {kinds!r}, expected {layers} times full_attention")
    positions = keys.integer("max_position_embeddings")
    bias = keys.flag("attention_bias", default=False)
    rope = rope_from_keys(keys, max_positions=positions)
    config = Qwen3Config(
        vocab_size=keys.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=keys.integer("intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=keys.integer("num_key_value_heads", default=heads),
        head_dim=keys.integer("head_dim")
        if kind == "qwen3"
        else keys.integer("head_dim", default=hidden // heads),
        norm_eps=keys.number("rms_norm_eps"),
        rope=rope,
        max_positions=rope.reach(positions),
        qk_norm=kind == "qwen3",
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=kind == "llama" and keys.flag("mlp_bias", default=False),
        tie_embeddings=keys.flag("tie_word_embeddings", default=False),
    )
    require_heads(keys.origin, config.num_heads, config.num_kv_heads, config.head_dim)
    return config


def require_heads(origin: str, heads: int, kv_heads: int, head_dim: int) -> None:
    """Heads must come in whole groups and rotate in pairs."""
    if heads % kv_heads:
        raise ValueError(
            f"{origin}: num_key_value_heads: got {kv_heads}, expected a divisor of {heads} heads"
        )
    if head_dim % 2:
        raise ValueError(f"{origin}: head_dim: got {head_dim}, expected an even number")


def config_to_json(config: Qwen3Config, dtype: torch.dtype) -> dict[str, Any]:
    """`config.json` of a folder that public tools load."""
    if config.qkv_bias != config.output_bias:
        raise ValueError(
            "qkv_bias and output_bias: got two values, expected one; the public layout has one key for both"
        )
    if config.qk_norm and config.mlp_bias:
        raise ValueError("mlp_bias: got True with qk_norm, expected False; no public layout has both")
    name = str(dtype).removeprefix("torch.")
    return {
        "architectures": ["Qwen3ForCausalLM" if config.qk_norm else "LlamaForCausalLM"],
        "model_type": "qwen3" if config.qk_norm else "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": config.max_positions,
        "attention_bias": config.qkv_bias,
        **({} if config.qk_norm else {"mlp_bias": config.mlp_bias}),
        "tie_word_embeddings": config.tie_embeddings,
        **rope_to_json(config.rope),
        "dtype": name,
        "torch_dtype": name,
    }
