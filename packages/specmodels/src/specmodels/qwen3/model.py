"""Qwen3 and Llama targets: token ids and a memory in, final hidden rows and tapped features out.

The model knows nothing of sampling, lengths or drafting; the memory decides what a row sees.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specmodels.attention import Attention
from specmodels.kv import Memory, StaticKV
from specmodels.layers.linear import Linear
from specmodels.layers.mlp import SwiGLU
from specmodels.layers.norm import RMSNorm
from specmodels.layers.rope import Rope, Rotation
from specmodels.qwen3.config import Qwen3Config


class DecoderOutput(NamedTuple):
    """Hidden rows after the final norm, and the tapped layers' outputs side by side on the last axis."""

    hidden_BQD: Tensor
    features_BQF: Tensor


class DecoderLayer(nn.Module):
    """Attention and feed-forward block, each behind its norm and added to the residual stream."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attention = Attention(
            width=config.hidden_size,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            norm_eps=config.norm_eps,
            qk_norm=config.qk_norm,
            qkv_bias=config.qkv_bias,
            output_bias=config.output_bias,
        )
        self.mlp_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = SwiGLU(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)

    def forward(self, x_BQD: Tensor, rotation: Rotation, memory: Memory, layer: int) -> Tensor:
        x_BQD = x_BQD + self.attention(self.attention_norm(x_BQD), rotation, memory, layer)
        return x_BQD + self.mlp(self.mlp_norm(x_BQD))


class Qwen3(nn.Module):
    """The whole target; `logits` is apart from `forward` so that callers pay for the rows they need."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.untied_head = None if config.tie_embeddings else Linear(config.hidden_size, config.vocab_size)
        self.rope = Rope(config.rope, config.head_dim, config.max_positions)

    @property
    def head_VD(self) -> Tensor:
        """The output projection; the very embedding table where the two are tied."""
        return self.embedding if self.untied_head is None else self.untied_head.weight

    def embed(self, tokens: Tensor) -> Tensor:
        """Rows of the embedding table: int64 `[...]` to `[..., D]`."""
        return F.embedding(tokens, self.embedding)

    def logits(self, hidden: Tensor) -> Tensor:
        """Project final hidden rows `[..., D]` to the vocabulary `[..., V]` in the model's dtype."""
        return F.linear(hidden, self.head_VD)

    def forward(
        self, tokens_BQ: Tensor, positions_BQ: Tensor, memory: Memory, taps: tuple[int, ...] = ()
    ) -> DecoderOutput:
        """Run the rows; `taps` are 0-based layer ids whose outputs (before the final norm) become features."""
        x_BQD = self.embed(tokens_BQ)
        rotation = self.rope(positions_BQ)
        tapped: dict[int, Tensor] = {}
        for index, layer in enumerate(self.layers):
            x_BQD = layer(x_BQD, rotation, memory, index)
            if index in taps:
                tapped[index] = x_BQD
        features = torch.cat([tapped[tap] for tap in taps], dim=-1) if taps else x_BQD[..., :0]
        return DecoderOutput(self.norm(x_BQD), features)

    def new_kv(self, *, batch: int, capacity: int) -> StaticKV:
        """A zeroed cache in this model's dtype and on its device."""
        return StaticKV(
            layers=self.config.num_layers,
            batch=batch,
            kv_heads=self.config.num_kv_heads,
            capacity=capacity,
            head_dim=self.config.head_dim,
            dtype=self.embedding.dtype,
            device=self.embedding.device,
        )
