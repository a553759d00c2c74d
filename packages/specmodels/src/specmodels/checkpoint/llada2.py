"""The public layout of LLaDA2 folders: config keys and tensor names, both ways."""

from typing import Any, Final

import torch

from specmodels.checkpoint.keymap import Row, expand
from specmodels.checkpoint.keys import Keys
from specmodels.checkpoint.qwen3 import require_heads
from specmodels.checkpoint.rope import rope_from_keys, rope_to_json
from specmodels.llada2.config import Llada2Config

# The published files say nowhere which token is the mask: it stands in the code that came with them, for their vocabulary.
_PUBLISHED_VOCABULARY: Final = 157_184
_PUBLISHED_MASK: Final = 156_895

ROUTER: Final = ".router."
"""In our names, what stays in fp32 whatever the dtype of the model."""

# ours, theirs; a leading "model." of theirs is dropped on load
_ROWS: Final = (
    ("embedding", "word_embeddings.weight"),
    ("norm.weight", "norm.weight"),
    ("head.weight", "lm_head.weight"),
    ("layers.{i}.attention_norm.weight", "layers.{i}.input_layernorm.weight"),
    ("layers.{i}.attention.qkv.weight", "layers.{i}.attention.query_key_value.weight"),
    ("layers.{i}.attention.query_norm.weight", "layers.{i}.attention.query_layernorm.weight"),
    ("layers.{i}.attention.key_norm.weight", "layers.{i}.attention.key_layernorm.weight"),
    ("layers.{i}.attention.output.weight", "layers.{i}.attention.dense.weight"),
    ("layers.{i}.mlp_norm.weight", "layers.{i}.post_attention_layernorm.weight"),
    ("layers.{i}.mlp.down.weight", "layers.{i}.mlp.down_proj.weight"),
    ("layers.{i}.mlp.router.weight", "layers.{i}.mlp.gate.weight"),
    ("layers.{i}.mlp.router.bias", "layers.{i}.mlp.gate.expert_bias"),
    ("layers.{i}.mlp.shared.down.weight", "layers.{i}.mlp.shared_experts.down_proj.weight"),
)
_EXPERTS: Final = (("gate_EUD", "gate_proj"), ("up_EUD", "up_proj"), ("down_EDU", "down_proj"))


def rows(config: Llada2Config) -> dict[str, Row]:
    """The whole table of one model; lines of parts that a layer lacks are simply not used."""
    mlp = "layers.{i}.mlp."
    stacked = [
        _gate_up(mlp, mlp, config.intermediate_size),
        _gate_up(f"{mlp}shared.", f"{mlp}shared_experts.", config.shared_experts * config.expert_size),
    ]
    for ours, theirs in _EXPERTS:
        each = config.hidden_size if ours == "down_EDU" else config.expert_size
        stacked.append(
            Row(
                f"{mlp}experts.{ours}",
                tuple(f"{mlp}experts.{e}.{theirs}.weight" for e in range(config.num_experts)),
                (each,) * config.num_experts,
                # training tools keep the experts of a layer in one tensor
                ((f"{mlp}experts.{theirs}",),),
            )
        )
    return expand((*(Row(ours, (theirs,)) for ours, theirs in _ROWS), *stacked), config.num_layers)


def _gate_up(ours: str, theirs: str, inner: int) -> Row:
    return Row(
        f"{ours}gate_up.weight", (f"{theirs}gate_proj.weight", f"{theirs}up_proj.weight"), (inner, inner)
    )


def config_from_keys(keys: Keys) -> Llada2Config:
    """Read the shape; keys that change what the model computes in ways we do not know are refused."""
    kind = keys.text("model_type")
    if kind not in {"llada2_moe", "llada2_moe_veomni"}:
        raise ValueError(f"{keys.origin}: model_type: got {kind!r}, expected llada2_moe")
    for name in ("use_bias", "use_qkv_bias", "tie_word_embeddings", "norm_head"):
        keys.only(name, False, reason="only the published form is supported")
    keys.only("hidden_act", "silu", reason="only the gated SiLU block is supported")
    keys.only("score_function", "sigmoid", reason="only routing by a sigmoid is supported")
    keys.only("moe_router_enable_expert_bias", True, reason="routing by a sigmoid has a bias")
    keys.only("router_dtype", "fp32", reason="the router works in fp32")
    for name in ("expert_capacity", "block_size"):
        keys.only(name, reason="routing by blocks is not supported")
    for name in ("delete_token_id", "split_token_id"):
        keys.only(name, reason="models that insert and delete are not supported")
    keys.only("quantization_config", reason="quantised weights are not supported; use the unquantised model")
    positions = keys.integer("max_position_embeddings")
    head_dim = keys.integer("head_dim")
    vocabulary = keys.integer("vocab_size")
    published = _PUBLISHED_MASK if vocabulary == _PUBLISHED_VOCABULARY else None
    mask = keys.integer("mask_token_id", default=published, least=0)
    if mask is None:
        raise ValueError(
            f"{keys.origin}: mask_token_id: missing, expected the id of the mask; add it to the file"
        )
    config = Llada2Config(
        vocab_size=vocabulary,
        hidden_size=keys.integer("hidden_size"),
        intermediate_size=keys.integer("intermediate_size"),
        num_layers=keys.integer("num_hidden_layers"),
        dense_layers=keys.integer("first_k_dense_replace", least=0),
        num_heads=keys.integer("num_attention_heads"),
        num_kv_heads=keys.integer("num_key_value_heads"),
        head_dim=head_dim,
        rotary_dim=round(head_dim * keys.number("partial_rotary_factor", default=1.0)),
        norm_eps=keys.number("rms_norm_eps"),
        rope=rope_from_keys(keys, max_positions=positions),
        max_positions=positions,
        qk_norm=keys.flag("use_qk_norm", default=True),
        num_experts=keys.integer("num_experts"),
        expert_size=keys.integer("moe_intermediate_size"),
        experts_per_row=keys.integer("num_experts_per_tok"),
        shared_experts=keys.integer("num_shared_experts", least=0),
        expert_groups=keys.integer("n_group"),
        groups_per_row=keys.integer("topk_group"),
        routed_scale=keys.number("routed_scaling_factor"),
        normalise_routing=keys.flag("norm_topk_prob"),
        mask_token_id=mask,
    )
    _require_sound(keys.origin, config)
    return config


def _require_sound(origin: str, config: Llada2Config) -> None:
    require_heads(origin, config.num_heads, config.num_kv_heads, config.head_dim)
    if not 0 < config.rotary_dim <= config.head_dim or config.rotary_dim % 2:
        raise ValueError(
            f"{origin}: partial_rotary_factor: got {config.rotary_dim} of {config.head_dim} entries, expected an even "
            "number of them"
        )
    if config.num_experts % config.expert_groups:
        raise ValueError(
            f"{origin}: n_group: got {config.expert_groups}, expected a divisor of {config.num_experts} experts"
        )
    if config.groups_per_row > config.expert_groups:
        raise ValueError(
            f"{origin}: topk_group: got {config.groups_per_row}, expected at most {config.expert_groups} groups"
        )
    open_experts = config.groups_per_row * (config.num_experts // config.expert_groups)
    if config.experts_per_row > open_experts:
        raise ValueError(
            f"{origin}: num_experts_per_tok: got {config.experts_per_row}, expected at most the {open_experts} experts "
            "of the open groups"
        )
    if config.mask_token_id >= config.vocab_size:
        raise ValueError(
            f"{origin}: mask_token_id: got {config.mask_token_id}, expected less than {config.vocab_size}"
        )


def config_to_json(config: Llada2Config, dtype: torch.dtype) -> dict[str, Any]:
    """`config.json` of a folder in the published layout, and the id of the mask, which that leaves out."""
    name = str(dtype).removeprefix("torch.")
    return {
        "architectures": ["LLaDA2MoeModelLM"],
        "model_type": "llada2_moe",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "first_k_dense_replace": config.dense_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "partial_rotary_factor": config.rotary_dim / config.head_dim,
        "rms_norm_eps": config.norm_eps,
        **rope_to_json(config.rope),
        "max_position_embeddings": config.max_positions,
        "use_qk_norm": config.qk_norm,
        "use_bias": False,
        "use_qkv_bias": False,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "num_experts": config.num_experts,
        "moe_intermediate_size": config.expert_size,
        "num_experts_per_tok": config.experts_per_row,
        "num_shared_experts": config.shared_experts,
        "n_group": config.expert_groups,
        "topk_group": config.groups_per_row,
        "routed_scaling_factor": config.routed_scale,
        "norm_topk_prob": config.normalise_routing,
        "score_function": "sigmoid",
        "router_dtype": "fp32",
        "moe_router_enable_expert_bias": True,
        "mask_token_id": config.mask_token_id,
        "dtype": name,
        "torch_dtype": name,
    }
