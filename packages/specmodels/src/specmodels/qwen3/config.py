"""The shape of a Qwen3 or Llama target; pure data, no file is read here."""

from dataclasses import dataclass

from specmodels.layers.rope import RopeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3Config:
    """A pre-norm decoder with grouped-query attention; the Llama form is this without `qk_norm`."""

    vocab_size: int  # rows of the embedding, padding included
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: RopeConfig
    max_positions: int  # longest sequence in tokens
    qk_norm: bool  # RMSNorm per head on queries and keys: true for Qwen3
    qkv_bias: bool
    output_bias: bool  # bias of the attention's output projection
    mlp_bias: bool
    tie_embeddings: bool  # the head is the embedding table
