"""The DFlash drafter: target features and a masked block in, one hidden row per drafted slot out.

It owns neither embedding nor head (unless its vocabulary is reduced): callers pass embedded rows and project the
result with the target's head.
"""

from typing import cast

import torch
from torch import Tensor, nn

from specmodels.attention import Attention
from specmodels.dflash.config import DFlashConfig
from specmodels.dflash.conv import BlockConv, convolve
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
        conv = config.conv
        self.attention_conv = (
            None if conv is None else BlockConv(config.hidden_size, taps=conv.taps, group=conv.group)
        )
        self.mlp_conv = (
            None if conv is None else BlockConv(config.hidden_size, taps=conv.taps, group=conv.group)
        )

    def forward(
        self, x_BQD: Tensor, rotation: Rotation, memory: Memory, layer: int, block_rows: int
    ) -> Tensor:
        normed_BQD = self.attention_norm(x_BQD)
        if self.attention_conv is None:
            x_BQD = x_BQD + self.attention(normed_BQD, rotation, memory, layer)
        else:
            before, after = self.attention_conv.kernels(normed_BQD)
            mixed_BQD = self.attention(convolve(before, normed_BQD, block_rows), rotation, memory, layer)
            x_BQD = x_BQD + convolve(after, mixed_BQD, block_rows)
        normed_BQD = self.mlp_norm(x_BQD)
        if self.mlp_conv is None:
            return x_BQD + self.mlp(normed_BQD)
        before, after = self.mlp_conv.kernels(normed_BQD)
        return x_BQD + convolve(after, self.mlp(convolve(before, normed_BQD, block_rows)), block_rows)


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
        # torch types the members of a ModuleList as plain modules
        layers = cast("list[DrafterLayer]", list(self.layers))
        return tuple(layer.attention.context(context_BCD, rotation) for layer in layers)

    def forward(
        self,
        block_BQD: Tensor,
        positions_BQ: Tensor,
        memories: tuple[Memory, ...],
        *,
        block_rows: int | None = None,
    ) -> Tensor:
        """Hidden rows `[B, Q, D]` after the final norm; `memories` holds one per layer.

        The rows are one block, or several of `block_rows` each, one after the other.
        """
        rows = block_BQD.shape[1]
        block_rows = rows if block_rows is None else block_rows
        # without a convolution the memories alone keep blocks apart
        assert self.config.conv is None or block_rows <= self.config.block_size, (
            block_rows,
            self.config.block_size,
        )
        assert rows % block_rows == 0, (rows, block_rows)
        rotation = self.rope(positions_BQ)
        x_BQD = block_BQD * self.config.embedding_scale if self.config.embedding_scale != 1.0 else block_BQD
        for index, (layer, memory) in enumerate(zip(self.layers, memories, strict=True)):
            x_BQD = layer(x_BQD, rotation, memory, index, block_rows)
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
