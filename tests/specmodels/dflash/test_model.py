"""The drafter: training form and decoding form of one block are the same numbers; options do what they say."""

import pytest
import torch

from specmodels.dflash import BlockRows, LayerKind, block_mask
from specmodels.kv import CacheMemory, ContextMemory

from doubles.tiny import dflash_config, qwen3_config, tiny_drafter, tiny_target

TARGET = qwen3_config()
KINDS = {
    "full": (LayerKind(window=None, causal=False),) * 2,
    "sliding": (LayerKind(window=4, causal=True), LayerKind(window=None, causal=False)),
    "windowed": (LayerKind(window=4, causal=False),) * 2,
}
# fp64: sums in another order
EXACT = 1e-12


def inputs(blocks: int, rows: int = 6, context: int = 14):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(1, context, 2 * TARGET.hidden_size, generator=generator, dtype=torch.float64)
    block = torch.randn(1, blocks * rows, TARGET.hidden_size, generator=generator, dtype=torch.float64)
    return features, block


@torch.no_grad()
@pytest.mark.parametrize("name", KINDS)
def test_blocks_trained_together_equal_blocks_drafted_alone(name):
    drafter = tiny_drafter(TARGET, dflash_config(TARGET, layers=KINDS[name]), dtype=torch.float64)
    features, block = inputs(blocks=3)
    anchors = torch.tensor([5, 0, 14])
    at = (anchors[:, None] + torch.arange(6)).flatten()[None]
    owner = torch.arange(3).repeat_interleave(6)[None]
    queries = BlockRows(at, owner, anchors.repeat_interleave(6)[None])
    places = torch.arange(14)[None]
    key_at, key_owner = torch.cat([places, at], 1), torch.cat([torch.full_like(places, -1), owner], 1)
    context = drafter.context_kv(drafter.context(features), places)
    memories = tuple(
        ContextMemory(context, block_mask(kind, queries, key_at, key_owner)) for kind in KINDS[name]
    )
    together = drafter(block, at, memories, block_rows=6)
    for index, anchor in enumerate(anchors.tolist()):
        kv = drafter.new_kv(batch=1, capacity=24)
        kv.key_LBGTH.fill_(1e5)
        kv.value_LBGTH.fill_(-1e5)
        seen = places[:, :anchor]
        for layer, (key, value) in enumerate(drafter.context_kv(drafter.context(features[:, :anchor]), seen)):
            kv.write(layer, seen, key, value)
        here = torch.arange(anchor, anchor + 6)[None]
        slots = torch.arange(24)[None]
        holder = torch.where(slots < anchor, -1, torch.where(slots < anchor + 6, 0, 9))
        rows = BlockRows(here, torch.zeros_like(here), torch.full_like(here, anchor))
        masks = [block_mask(kind, rows, slots, holder) for kind in KINDS[name]]
        alone = drafter(
            block[:, index * 6 : index * 6 + 6], here, tuple(CacheMemory(kv, here, mask) for mask in masks)
        )
        torch.testing.assert_close(together[:, index * 6 : index * 6 + 6], alone, atol=EXACT, rtol=EXACT)


def hidden_of(**changes) -> torch.Tensor:
    drafter = tiny_drafter(TARGET, dflash_config(TARGET, **changes), dtype=torch.float64)
    features, block = inputs(blocks=1)
    if "embedding_scale" in changes:
        block = block / changes["embedding_scale"]
    places, at = torch.arange(14)[None], torch.arange(14, 20)[None]
    memory = ContextMemory(
        drafter.context_kv(drafter.context(features), places), torch.ones(1, 6, 20, dtype=torch.bool)
    )
    return drafter(block, at, (memory,) * 2)


def test_the_embedding_scale_multiplies_block_rows():
    torch.testing.assert_close(hidden_of(embedding_scale=4.0), hidden_of(), atol=EXACT, rtol=EXACT)


def test_logits_take_the_multiplier_first_and_the_cap_then():
    head = tiny_target(TARGET).head_VD
    hidden = torch.randn(1, 3, 32)
    plain = tiny_drafter(TARGET).logits(hidden, head)
    assert torch.equal(plain, hidden @ head.T)
    both = tiny_drafter(TARGET, dflash_config(TARGET, output_multiplier=0.5, softcap=2.0)).logits(
        hidden, head
    )
    torch.testing.assert_close(both, 2.0 * torch.tanh(plain * 0.5 / 2.0))


def test_the_slots_that_count():
    assert dflash_config(TARGET, shifted=False).num_drafted == 5
    assert dflash_config(TARGET, shifted=True).num_drafted == 6


def test_gradients_reach_every_weight():
    drafter = tiny_drafter(TARGET).requires_grad_()
    features, block = inputs(blocks=1)
    places, at = torch.arange(14)[None], torch.arange(14, 20)[None]
    context = drafter.context_kv(drafter.context(features.float()), places)
    memory = ContextMemory(context, torch.ones(1, 6, 20, dtype=torch.bool))
    drafter(block.float(), at, (memory,) * 2).square().sum().backward()
    for name, parameter in drafter.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
