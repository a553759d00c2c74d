"""Folders for the text "every token is the one before plus 1, modulo 8": a target that says it, and drafters that know it.

All weights are set by hand. A drafter's first layer looks a fixed distance back and copies the token that stands there;
one period back it finds what it has to say, so that the distance alone tells a shifted drafter from one that fills in.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

PERIOD = 8  # tokens 0 to 7 count; the rest of the vocabulary stands for nothing
VOCAB, WIDTH, HEAD, INNER = 12, 16, 16, 24
MASK = 11
LAYERS, TARGET_LAYERS, TAPS = 2, 4, (1, 2)
THETA = 10000.0
CONSTANT = PERIOD  # this channel of every embedding is 1
PROMPT = tuple(index % PERIOD for index in range(12))
SHARP = 8.0  # weight of the norms of query and key; their square scales what the distance decides

BACKBONE: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": HEAD,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 128,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "use_cache": True,
    "vocab_size": VOCAB,
}
OLD_ROPE: dict[str, Any] = {"rope_theta": THETA, "rope_scaling": None}
NEW_ROPE: dict[str, Any] = {"rope_parameters": {"rope_theta": THETA, "rope_type": "default"}}


def embedding() -> Tensor:
    table = torch.zeros(VOCAB, WIDTH)
    table[:PERIOD, :PERIOD] = torch.eye(PERIOD)
    table[:, CONSTANT] = 1.0
    return table


def head(ids: Tensor | None = None) -> Tensor:
    """Rows that answer a hidden row "t" with t + 1; those of some tokens only, if asked."""
    table = torch.zeros(VOCAB, WIDTH)
    table[:PERIOD, :PERIOD] = 2.0 * torch.eye(PERIOD).roll(1, dims=0)
    return table if ids is None else table[ids]


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def target_folder(folder: Path, family: str) -> Path:
    """A Qwen3 or Llama target whose layers add nothing, so that its final norm reads the embedding."""
    tensors = {
        "model.embed_tokens.weight": embedding(),
        "model.norm.weight": torch.ones(WIDTH),
        "lm_head.weight": head(),
    }
    for layer in range(TARGET_LAYERS):
        tensors |= layer_tensors(f"model.layers.{layer}.")
    if family == "llama":
        tensors = {
            name: tensor for name, tensor in tensors.items() if "q_norm" not in name and "k_norm" not in name
        }
    names = {"qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}
    config = {
        **BACKBONE,
        **OLD_ROPE,
        "architectures": [names[family]],
        "model_type": family,
        "num_hidden_layers": TARGET_LAYERS,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    write(folder, config, tensors)
    words = {str(number): number for number in range(VOCAB)}
    Tokenizer(WordLevel(words, unk_token="0")).save(str(folder / "tokenizer.json"))
    return folder


def layer_tensors(prefix: str) -> dict[str, Tensor]:
    """A layer that adds nothing, under the public names."""
    shapes = {
        "self_attn.q_proj.weight": (HEAD, WIDTH),
        "self_attn.k_proj.weight": (HEAD, WIDTH),
        "self_attn.v_proj.weight": (HEAD, WIDTH),
        "self_attn.o_proj.weight": (WIDTH, HEAD),
        "mlp.gate_proj.weight": (INNER, WIDTH),
        "mlp.up_proj.weight": (INNER, WIDTH),
        "mlp.down_proj.weight": (WIDTH, INNER),
    }
    norms = {
        "input_layernorm.weight": WIDTH,
        "post_attention_layernorm.weight": WIDTH,
        "self_attn.q_norm.weight": HEAD,
        "self_attn.k_norm.weight": HEAD,
    }
    return {
        **{prefix + name: torch.zeros(shape) for name, shape in shapes.items()},
        **{prefix + name: torch.ones(size) for name, size in norms.items()},
    }


def drafter_tensors(*, shifted: bool) -> dict[str, Tensor]:
    """A backbone trained, so to speak, in one of the two layouts."""
    tensors = {
        "fc.weight": torch.cat([torch.eye(WIDTH), torch.zeros(WIDTH, WIDTH)], dim=1),
        "hidden_norm.weight": torch.ones(WIDTH),
        "norm.weight": torch.ones(WIDTH),
    }
    for layer in range(LAYERS):
        tensors |= layer_tensors(f"layers.{layer}.")
    # a row says "t" and the target's head answers t + 1: the row of slot k repeats token a + k, or the one before
    distance = PERIOD if shifted else PERIOD + 1
    half = HEAD // 2
    angle = distance * THETA ** (-torch.arange(half) / half)
    at = "layers.0.self_attn."
    tensors[at + "k_proj.weight"][:half, CONSTANT] = 1.0
    tensors[at + "q_proj.weight"][:, CONSTANT] = torch.cat([angle.cos(), -angle.sin()])
    for kind in "qk":
        tensors[f"{at}{kind}_norm.weight"].fill_(SHARP)
    for token in range(PERIOD):
        tensors[at + "v_proj.weight"][token, token] = 1.0
        tensors[at + "o_proj.weight"][token, token] = 10.0
    return tensors


def small(shapes: dict[str, tuple[int, ...]], scale: float = 0.02) -> dict[str, Tensor]:
    """Weights of a head that hardly moves the logits, all of them different."""
    generator = torch.Generator().manual_seed(7)
    return {name: scale * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
