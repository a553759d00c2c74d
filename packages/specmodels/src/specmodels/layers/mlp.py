"""The gated feed-forward block."""

from torch import Tensor, nn
from torch.nn import functional as F

from specmodels.layers.linear import Linear


class SwiGLU(nn.Module):
    """`down(silu(gate(x)) * up(x))` with gate and up stored as one matrix, gate rows first."""

    def __init__(self, width: int, inner: int, *, bias: bool = False) -> None:
        super().__init__()
        self.gate_up = Linear(width, 2 * inner, bias=bias)
        self.down = Linear(inner, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)
