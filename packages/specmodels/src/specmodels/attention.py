"""The attention block of the Qwen3 and Llama forms, and of the DFlash drafter."""

from torch import Tensor, nn

from specmodels.attend import attend
from specmodels.kv import Memory
from specmodels.layers.linear import Linear
from specmodels.layers.norm import RMSNorm
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
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.qkv = Linear(width, (heads + 2 * kv_heads) * head_dim, bias=qkv_bias)
        self.output = Linear(heads * head_dim, width, bias=output_bias)
        self.query_norm = RMSNorm(head_dim, norm_eps) if qk_norm else None
        self.key_norm = RMSNorm(head_dim, norm_eps) if qk_norm else None

    def forward(self, x_BQD: Tensor, rotation: Rotation, memory: Memory, layer: int) -> Tensor:
        batch, rows, _ = x_BQD.shape
        split = [self.heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim]
        query, key, value = self.qkv(x_BQD).split(split, dim=-1)
        query = query.view(batch, rows, self.heads, self.head_dim).transpose(1, 2)
        if self.query_norm is not None:
            query = self.query_norm(query)
        key_BGTH, value_BGTH = memory.join(layer, self.keys(key, rotation), self.values(value))
        out_BAQH = attend(rotate(query, rotation), key_BGTH, value_BGTH, memory.mask_BQT)
        return self.output(out_BAQH.transpose(1, 2).reshape(batch, rows, -1))

    def keys(self, key_BQE: Tensor, rotation: Rotation) -> Tensor:
        """Normed and rotated key heads `[B, G, Q, H]` of projected rows."""
        key_BGQH = key_BQE.unflatten(-1, (self.kv_heads, self.head_dim)).transpose(1, 2)
        if self.key_norm is not None:
            key_BGQH = self.key_norm(key_BGQH)
        return rotate(key_BGQH, rotation)

    def values(self, value_BQE: Tensor) -> Tensor:
        return value_BQE.unflatten(-1, (self.kv_heads, self.head_dim)).transpose(1, 2)

    def context(self, context_BCD: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Keys and values of rows that are only ever attended to (DFlash injects target features this way)."""
        weight = self.qkv.weight[self.heads * self.head_dim :]
        bias = None if self.qkv.bias is None else self.qkv.bias[self.heads * self.head_dim :]
        key, value = nn.functional.linear(context_BCD, weight, bias).chunk(2, dim=-1)
        return self.keys(key, rotation), self.values(value)
