"""The attention block against its definition, one head and one row at a time: catches heads in the wrong order, a norm or
rotation on the wrong side, a group that reads its neighbour's keys."""

import math

import pytest
import torch

from specmodels.attention import Attention
from specmodels.kv import RowsMemory
from specmodels.layers.rope import Rope, RopeConfig

WIDTH, HEADS, GROUPS, HEAD, ROWS = 12, 4, 2, 6, 5
# fp64: sums in another order
EXACT = 1e-12


def block(*, norms: bool, bias: bool) -> Attention:
    attention = Attention(
        width=WIDTH,
        heads=HEADS,
        kv_heads=GROUPS,
        head_dim=HEAD,
        norm_eps=1e-5,
        qk_norm=norms,
        qkv_bias=bias,
        output_bias=bias,
    ).double()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    return attention.requires_grad_(requires_grad=False)


def turn(head_H: torch.Tensor, position: int) -> torch.Tensor:
    """Rotate pairs `(i, i + H/2)`, with the rounding of the fp32 table."""
    half = HEAD // 2
    out = head_H.clone()
    for pair in range(half):
        angle = torch.tensor(float(position)) * torch.tensor(100.0) ** (-2 * pair / HEAD)
        cos, sin = angle.cos().double(), angle.sin().double()
        out[pair] = head_H[pair] * cos - head_H[pair + half] * sin
        out[pair + half] = head_H[pair + half] * cos + head_H[pair] * sin
    return out


def vectors(attention: Attention, x_D: torch.Tensor, position: int):
    """Query heads, key heads and value heads of one row."""
    projected = attention.qkv.weight @ x_D
    if attention.qkv.bias is not None:
        projected = projected + attention.qkv.bias
    heads = projected.view(HEADS + 2 * GROUPS, HEAD)
    result = []
    for index in range(HEADS + GROUPS):
        head = heads[index]
        if attention.query_norm is not None:
            norm = attention.query_norm if index < HEADS else attention.key_norm
            head = head / math.sqrt((head * head).mean().item() + 1e-5) * norm.weight
        result.append(turn(head, position))
    return result[:HEADS], result[HEADS:], list(heads[HEADS + GROUPS :])


@pytest.mark.parametrize("norms", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_against_the_definition(norms, bias):
    attention = block(norms=norms, bias=bias)
    rope = Rope(RopeConfig(theta=100.0), HEAD, 32).double()
    x = torch.randn(1, ROWS, WIDTH, dtype=torch.float64)
    positions = torch.arange(3, 3 + ROWS)[None]
    rows = [vectors(attention, x[0, row], 3 + row) for row in range(ROWS)]
    out = attention(x, rope(positions), RowsMemory(), 0)
    for row in range(ROWS):
        mixed = []
        for head in range(HEADS):
            group = head // (HEADS // GROUPS)
            scores = torch.stack([rows[row][0][head] @ rows[past][1][group] for past in range(row + 1)])
            weights = (scores / math.sqrt(HEAD)).softmax(dim=0)
            mixed.append(sum(weights[past] * rows[past][2][group] for past in range(row + 1)))
        expected = attention.output.weight @ torch.cat(mixed)
        if attention.output.bias is not None:
            expected = expected + attention.output.bias
        # the table's angles are fp32 powers, rounded in another order here
        torch.testing.assert_close(out[0, row], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norms", [True, False])
def test_context_rows_are_the_keys_and_values_of_the_same_projection(norms):
    attention = block(norms=norms, bias=True)
    rope = Rope(RopeConfig(theta=100.0), HEAD, 32).double()
    x = torch.randn(2, ROWS, WIDTH, dtype=torch.float64)
    rotation = rope(torch.arange(ROWS).expand(2, ROWS))
    seen = []

    class Spy(RowsMemory):
        def join(self, layer, key_BGQH, value_BGQH):
            seen.extend((key_BGQH, value_BGQH))
            return key_BGQH, value_BGQH

    attention(x, rotation, Spy(), 0)
    key, value = attention.context(x, rotation)
    torch.testing.assert_close(key, seen[0], atol=EXACT, rtol=EXACT)
    torch.testing.assert_close(value, seen[1], atol=EXACT, rtol=EXACT)
