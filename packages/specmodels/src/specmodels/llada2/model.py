"""LLaDA2: token ids and a memory in, final hidden rows out; row i is about token i itself, not the one after it.

The model knows nothing of blocks, masks of tokens or thresholds; the memory decides what a row sees.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specmodels.attention import Attention
from specmodels.kv import Memory, StaticKV
from specmodels.layers.linear import Linear
from specmodels.layers.mlp import SwiGLU
from specmodels.layers.norm import RMSNorm
from specmodels.layers.rope import Rope, Rotation
from specmodels.llada2.config import Llada2Config
from specmodels.llada2.experts import MixtureOfExperts


class Llada2Layer(nn.Module):
    """Attention and feed-forward block, each behind its norm and added to the residual stream."""

    def __init__(self, config: Llada2Config, *, dense: bool) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attention = Attention(
            width=config.hidden_size,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            norm_eps=config.norm_eps,
            qk_norm=config.qk_norm,
        )
        self.mlp_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = SwiGLU(config.hidden_size, config.intermediate_size) if dense else MixtureOfExperts(config)

    def forward(self, x_BQD: Tensor, rotation: Rotation, memory: Memory, layer: int) -> Tensor:
        x_BQD = x_BQD + self.attention(self.attention_norm(x_BQD), rotation, memory, layer)
        return x_BQD + self.mlp(self.mlp_norm(x_BQD))


class Llada2(nn.Module):
    """The whole model; `logits` is apart from `forward` so that callers pay for the rows they need."""

    def __init__(self, config: Llada2Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        self.layers = nn.ModuleList(
            Llada2Layer(config, dense=layer < config.dense_layers) for layer in range(config.num_layers)
        )
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.head = Linear(config.hidden_size, config.vocab_size)
        self.rope = Rope(config.rope, config.rotary_dim, config.max_positions)

    def logits(self, hidden: Tensor) -> Tensor:
        """Project final hidden rows `[..., D]` to the vocabulary `[..., V]` in the model's dtype."""
        return self.head(hidden)

    def forward(self, tokens_BQ: Tensor, positions_BQ: Tensor, memory: Memory) -> Tensor:
        """Hidden rows `[B, Q, D]` after the final norm."""
        x_BQD = F.embedding(tokens_BQ, self.embedding)
        rotation = self.rope(positions_BQ)
        for index, layer in enumerate(self.layers):
            x_BQD = layer(x_BQD, rotation, memory, index)
        return self.norm(x_BQD)

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
