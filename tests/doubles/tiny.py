"""Small random models with the real interfaces: seeded, in fp32 or fp64, built in milliseconds."""

from dataclasses import replace
from typing import Any

import torch

from specmodels.dflash import DFlash, DFlashConfig, LayerKind
from specmodels.initialise import initialise
from specmodels.layers.rope import RopeConfig
from specmodels.llada2 import Llada2, Llada2Config
from specmodels.qwen3 import Qwen3, Qwen3Config

FULL = LayerKind(window=None, causal=False)


def qwen3_config(**changes: Any) -> Qwen3Config:
    """A Qwen3 target of four layers with two query heads per key head."""
    config = Qwen3Config(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_layers=4,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        norm_eps=1e-6,
        rope=RopeConfig(theta=10000.0),
        max_positions=256,
        qk_norm=True,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        tie_embeddings=True,
    )
    return replace(config, **changes)


def llama_config(**changes: Any) -> Qwen3Config:
    """The Llama form of the same size: no norms of queries and keys, untied head."""
    return qwen3_config(qk_norm=False, tie_embeddings=False, **changes)


def dflash_config(target: Qwen3Config, **changes: Any) -> DFlashConfig:
    """A drafter of two full layers for `target`, block of six rows, taps after the second and the last layer but one."""
    config = DFlashConfig(
        hidden_size=target.hidden_size,
        intermediate_size=40,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        norm_eps=1e-6,
        rope=RopeConfig(theta=10000.0),
        max_positions=256,
        layers=(FULL, FULL),
        attention_bias=False,
        block_size=6,
        mask_token_id=target.vocab_size - 1,
        target_layers=(1, target.num_layers - 2),
        target_hidden_size=target.hidden_size,
        shifted=False,
    )
    return replace(config, **changes)


def tiny_target(
    config: Qwen3Config | None = None, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Qwen3:
    """A random target whose greedy text varies: layers outweigh the embedding, or a tied head would repeat its input."""
    model = _randomised(Qwen3(qwen3_config() if config is None else config), seed, dtype)
    model.embedding.data.mul_(0.3)
    return model


def tiny_drafter(
    target: Qwen3Config,
    config: DFlashConfig | None = None,
    *,
    seed: int = 1,
    dtype: torch.dtype = torch.float32,
) -> DFlash:
    """A random drafter for a target; it knows nothing of it, so little of what it drafts is accepted."""
    model = DFlash(dflash_config(target) if config is None else config)
    if model.draft_to_target_v is not None:
        rows = model.draft_to_target_v.shape[0]
        model.draft_to_target_v.copy_(torch.arange(rows) * (target.vocab_size // rows))
    return _randomised(model, seed, dtype)


def llada2_config(**changes: Any) -> Llada2Config:
    """A LLaDA2 model of three layers, the first without experts; half of every head rotates."""
    config = Llada2Config(
        vocab_size=53,
        hidden_size=32,
        intermediate_size=40,
        num_layers=3,
        dense_layers=1,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        rotary_dim=4,
        norm_eps=1e-6,
        rope=RopeConfig(theta=10000.0),
        max_positions=256,
        qk_norm=True,
        num_experts=12,
        expert_size=8,
        experts_per_row=3,
        shared_experts=2,
        expert_groups=4,
        groups_per_row=2,
        routed_scale=2.5,
        normalise_routing=True,
        mask_token_id=52,
    )
    return replace(config, **changes)


def tiny_llada2(
    config: Llada2Config | None = None, *, seed: int = 2, dtype: torch.dtype = torch.float32
) -> Llada2:
    """A random LLaDA2 model whose router biases change which experts are chosen."""
    model: Llada2 = _randomised(Llada2(llada2_config() if config is None else config), seed, dtype)
    generator = torch.Generator().manual_seed(seed)
    for layer in model.layers[model.config.dense_layers :]:
        bias = layer.mlp.router.bias
        bias.copy_(torch.rand(bias.shape, generator=generator) * 0.5)
    return model


def _randomised(model: Any, seed: int, dtype: torch.dtype) -> Any:
    generator = torch.Generator().manual_seed(seed)
    initialise(model, generator, std=0.35)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # norms and biases off their neutral values, so that a forgotten one shows
            if parameter.ndim < 2 or "base_kernel" in name or "projection" in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    model.to(dtype).requires_grad_(requires_grad=False).eval()
    return model
