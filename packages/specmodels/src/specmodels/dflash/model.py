"""The DFlash drafter: target features and a masked block in, one hidden row per drafted slot out.

It owns neither embedding nor head (unless its vocabulary is reduced): callers pass embedded rows and project the
result with the target's head.
"""

import torch
from torch import Tensor, nn

from specmodels.attention import Attention
from specmodels.dflash.config import DFlashConfig
from specmodels.kv import Memory, StaticKV
from specmodels.layers.linear import Linear
from specmodels.layers.mlp import SwiGLU
from specmodels.layers.norm import RMSNorm
from specmodels.layers.rope import Rope, Rotation


class DrafterLayer(nn.Module):
    """A pre-norm layer whose queries are the block; context reaches it as keys and values only."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attention = Attention(
            width=config.hidden_size,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            norm_eps=config.norm_eps,
            qk_norm=True,
            qkv_bias=config.attention_bias,
            output_bias=config.attention_bias,
        )
        self.mlp_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = SwiGLU(config.hidden_size, config.intermediate_size)

    def forward(self, x_BQD: Tensor, rotation: Rotation, memory: Memory, layer: int) -> Tensor:
        x_BQD = x_BQD + self.attention(self.attention_norm(x_BQD), rotation, memory, layer)
        return x_BQD + self.mlp(self.mlp_norm(x_BQD))


class DFlash(nn.Module):
    """The drafter of arXiv 2602.06036."""

    draft_to_target_v: Tensor | None

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.config = config
        taps = len(config.target_layers)
        self.fuse = Linear(taps * config.target_hidden_size, config.hidden_size)
        self.context_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.layers = nn.ModuleList(DrafterLayer(config) for _ in config.layers)
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.rope = Rope(config.rope, config.head_dim, config.max_positions)
        reduced = config.draft_vocab_size
        self.own_head = None if reduced is None else Linear(config.hidden_size, reduced)
        ids = None if reduced is None else torch.zeros(reduced, dtype=torch.int64)
        self.register_buffer("draft_to_target_v", ids)

    def context(self, features_BCF: Tensor) -> Tensor:
        """Fuse tapped target features to `[B, C, D]`: computed once, the same for every layer."""
        return self.context_norm(self.fuse(features_BCF))

    def context_kv(self, context_BCD: Tensor, positions_BC: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        """Keys and values `[B, G, C, H]` of context rows, per layer. They skip the layers' input norms."""
        rotation = self.rope(positions_BC)
        return tuple(layer.attention.context(context_BCD, rotation) for layer in self.layers)

    def forward(self, block_BQD: Tensor, positions_BQ: Tensor, memories: tuple[Memory, ...]) -> Tensor:
        """Hidden rows `[B, Q, D]` after the final norm; `memories` holds one per layer."""
        rotation = self.rope(positions_BQ)
        x_BQD = block_BQD * self.config.embedding_scale if self.config.embedding_scale != 1.0 else block_BQD
        for index, (layer, memory) in enumerate(zip(self.layers, memories, strict=True)):
            x_BQD = layer(x_BQD, rotation, memory, index)
        return self.norm(x_BQD)

    def logits(self, hidden: Tensor, target_head_VD: Tensor) -> Tensor:
        """Base logits over the drafter's vocabulary: the target's, or the reduced one."""
        head = target_head_VD if self.own_head is None else self.own_head.weight
        logits = nn.functional.linear(hidden, head)
        if self.config.output_multiplier != 1.0:
            logits = logits * self.config.output_multiplier
        if self.config.softcap is not None:
            logits = self.config.softcap * torch.tanh(logits / self.config.softcap)
        return logits

    def new_kv(self, *, batch: int, capacity: int) -> StaticKV:
        """A zeroed cache in this drafter's dtype and on its device."""
        return StaticKV(
            layers=len(self.config.layers),
            batch=batch,
            kv_heads=self.config.num_kv_heads,
            capacity=capacity,
            head_dim=self.config.head_dim,
            dtype=self.fuse.weight.dtype,
            device=self.fuse.weight.device,
        )
