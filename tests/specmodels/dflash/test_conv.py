"""The block convolution: against its definition, inside its block, and the identity as plain DFlash bit for bit."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from specmodels.dflash import BlockRows, ConvConfig, block_mask
from specmodels.dflash.conv import BlockConv, convolve, convolve_naive
from specmodels.kv import ContextMemory

from doubles.tiny import dflash_config, qwen3_config, tiny_drafter

TARGET = qwen3_config()
CONV = ConvConfig(taps=3, group=4)


@given(seed=st.integers(0, 999), blocks=st.integers(1, 3), rows=st.integers(1, 5), taps=st.integers(1, 4))
def test_equals_its_twin(seed, blocks, rows, taps):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, blocks * rows, 6, generator=generator)
    kernel = torch.randn(2, blocks * rows, taps, 6, generator=generator)
    # sums of at most four products in another order
    torch.testing.assert_close(
        convolve(kernel, x, rows), convolve_naive(kernel, x, rows), atol=1e-5, rtol=1e-5
    )


def test_kernels_by_their_definition():
    conv = BlockConv(8, taps=2, group=4)
    torch.nn.init.normal_(conv.base_kernel)
    torch.nn.init.normal_(conv.projection.weight)
    x = torch.randn(1, 3, 8)
    chosen = (x @ conv.projection.weight.T).view(1, 3, 2, 2, 2)  # side, tap, group
    for side, kernel in enumerate(conv.kernels(x)):
        for tap in range(2):
            for channel in range(8):
                expected = conv.base_kernel[side, tap, channel] + chosen[:, :, side, tap, channel // 4]
                torch.testing.assert_close(kernel[:, :, tap, channel], expected)


def run(drafter, block, blocks: int, **options):
    rows = block.shape[1] // blocks
    anchors = torch.arange(blocks) * 3 + 4
    at = (anchors[:, None] + torch.arange(rows)).flatten()[None]
    owner = torch.arange(blocks).repeat_interleave(rows)[None]
    queries = BlockRows(at, owner, anchors.repeat_interleave(rows)[None])
    places = torch.arange(12)[None]
    rows_c = torch.randn(1, 12, 2 * TARGET.hidden_size, generator=torch.Generator().manual_seed(9))
    context = drafter.context_kv(drafter.context(rows_c), places)
    key_at, key_owner = torch.cat([places, at], 1), torch.cat([torch.full_like(places, -1), owner], 1)
    memories = tuple(
        ContextMemory(context, block_mask(kind, queries, key_at, key_owner)) for kind in drafter.config.layers
    )
    return drafter(block, at, memories, **options)


def test_identity_weights_are_plain_dflash_bit_for_bit():
    plain = tiny_drafter(TARGET)
    conv = tiny_drafter(TARGET, dflash_config(TARGET, conv=CONV))
    for layer in conv.layers:
        layer.attention_conv.set_identity()
        layer.mlp_conv.set_identity()
    assert not conv.load_state_dict(plain.state_dict(), strict=False).unexpected_keys
    block = torch.randn(1, 6, TARGET.hidden_size)
    assert torch.equal(run(conv, block, 1), run(plain, block, 1))


def test_blocks_side_by_side_do_not_touch():
    drafter = tiny_drafter(TARGET, dflash_config(TARGET, conv=CONV), dtype=torch.float32)
    block = torch.randn(1, 12, TARGET.hidden_size)
    out = run(drafter, block, 2, block_rows=6)
    changed = block.clone()
    changed[:, 4:6] += 1.0
    again = run(drafter, changed, 2, block_rows=6)
    assert torch.equal(again[:, 6:], out[:, 6:]), "the end of the first block leaks into the second"
    assert not torch.equal(again[:, :6], out[:, :6])
    # the other way round, slot 0 of the second block: its predecessors are zeros
    assert not torch.equal(run(drafter, block, 1, block_rows=6)[:, 6:], out[:, 6:])
