"""The attention block of the Qwen3 and Llama forms, and of the DFlash drafter."""

import torch
from torch import Tensor, nn

from specmodels.attend import attend
from specmodels.kv import Memory
from specmodels.layers.linear import Linear
from specmodels.layers.norm import RMSNorm, unit_rms
from specmodels.layers.rope import Rotation, rotate


class Attention(nn.Module):
    """Projections, optional per-head norms of queries and keys, rotation, attention, output projection.

    `qkv` holds the three projections as one matrix: query rows first, then keys, then values.
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        norm_eps: float,
        qk_norm: bool,
        qkv_bias: bool = False,
        output_bias: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.norm_eps = heads, kv_heads, head_dim, norm_eps
        self.qkv = Linear(width, (heads + 2 * kv_heads) * head_dim, bias=qkv_bias)
        self.output = Linear(heads * head_dim, width, bias=output_bias)
        self.query_norm = RMSNorm(head_dim, norm_eps) if qk_norm else None
        self.key_norm = RMSNorm(head_dim, norm_eps) if qk_norm else None

    def forward(self, x_BQD: Tensor, rotation: Rotation, memory: Memory, layer: int) -> Tensor:
        batch, rows, _ = x_BQD.shape
        heads_BQAH = self.qkv(x_BQD).view(batch, rows, -1, self.head_dim)
        turning = self.heads + self.kv_heads
        # queries and keys are normed and turned together: the same numbers as apart, in half the calls
        turned_BAQH = self._turned(heads_BQAH[:, :, :turning], rotation, self._weights_AH())
        value_BGQH = heads_BQAH[:, :, turning:].transpose(1, 2)
        key_BGTH, value_BGTH = memory.join(layer, turned_BAQH[:, self.heads :], value_BGQH)
        out_BAQH = attend(turned_BAQH[:, : self.heads], key_BGTH, value_BGTH, memory.mask_BQT)
        return self.output(out_BAQH.transpose(1, 2).reshape(batch, rows, -1))

    def _weights_AH(self) -> Tensor | None:
        if self.query_norm is None or self.key_norm is None:
            return None
        query_AH = self.query_norm.weight.expand(self.heads, -1)
        return torch.cat([query_AH, self.key_norm.weight.expand(self.kv_heads, -1)])

    def _turned(self, heads_BQAH: Tensor, rotation: Rotation, weights_AH: Tensor | None) -> Tensor:
        """Heads `[B, A, Q, H]`, normed if there are weights, then rotated."""
        if weights_AH is not None:
            heads_BQAH = unit_rms(heads_BQAH, self.norm_eps) * weights_AH
        return rotate(heads_BQAH.transpose(1, 2), rotation)

    def context(self, context_BCD: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Keys and values of rows that are only ever attended to (DFlash injects target features this way)."""
        weight = self.qkv.weight[self.heads * self.head_dim :]
        bias = None if self.qkv.bias is None else self.qkv.bias[self.heads * self.head_dim :]
        heads_BCGH = nn.functional.linear(context_BCD, weight, bias).unflatten(
            -1, (2 * self.kv_heads, self.head_dim)
        )
        weight_H = None if self.key_norm is None else self.key_norm.weight
        key_BGCH = self._turned(heads_BCGH[:, :, : self.kv_heads], rotation, weight_H)
        return key_BGCH, heads_BCGH[:, :, self.kv_heads :].transpose(1, 2)
