"""RMSNorm by its definition, in every dtype: statistics in fp32, and the weight after the cast."""

import pytest
import torch

from specmodels.layers import RMSNorm, SwiGLU


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_against_the_definition(dtype):
    norm = RMSNorm(16, 1e-5).to(dtype)
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(3, 5, 16).to(dtype)
    wide = x.double() if dtype == torch.float64 else x.float()
    expected = (wide * (wide.pow(2).mean(dim=-1, keepdim=True) + 1e-5).rsqrt()).to(dtype) * norm.weight
    # fp32: one rounding of the inverse root and of each product; bf16 and fp16: at most one step where the cast rounds up
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(norm(x), expected, atol=0, rtol=4 * step if dtype.itemsize > 2 else step)


def test_swiglu_by_hand():
    mlp = SwiGLU(2, 1)
    with torch.no_grad():
        mlp.gate_up.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        mlp.down.weight.copy_(torch.tensor([[1.0], [2.0]]))
    out = mlp(torch.tensor([[1.0, 3.0]]))
    gated = 3.0 / (1 + torch.exp(torch.tensor(-1.0)))
    torch.testing.assert_close(out, torch.stack([gated, 2 * gated])[None])
