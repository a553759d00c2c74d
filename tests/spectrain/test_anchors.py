"""Training blocks against loops, against leaks, and against cached decoding."""

import math

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask

import spectrain.anchors
from specmodels.dflash import BlockRows, LayerKind, block_mask
from specmodels.kv import CacheMemory, RowsMemory
from spectrain.anchors import (
    Anchors,
    anchor_candidates,
    draft_rows,
    make_blocks,
    sample_anchors,
    training_block_mask,
    training_mask,
)
from spectrain.data import document_mask, pack

from doubles.corpora import random_shard
from doubles.tiny import dflash_config, qwen3_config, tiny_drafter, tiny_target

TARGET = qwen3_config()
KINDS = [
    LayerKind(window=None, causal=False),
    LayerKind(window=None, causal=True),
    LayerKind(window=5, causal=True),
]
# fp64: what differs is the order of sums
EXACT = 1e-12


def packed(row: int = 60):
    shard = random_shard(6)
    return pack(shard, [[0, 3], [4, 1]], row)


def drawn(batch, count: int, seed: int = 0) -> Anchors:
    return sample_anchors(anchor_candidates(batch), count, torch.Generator().manual_seed(seed))


def test_candidates_are_response_tokens_before_response_tokens():
    batch = packed()
    candidate_BS = anchor_candidates(batch)
    rows, places = batch.token_BS.shape
    for b in range(rows):
        for s in range(places):
            fits = s + 1 < places and bool(
                batch.response_BS[b, s]
                and batch.response_BS[b, s + 1]
                and batch.document_BS[b, s] == batch.document_BS[b, s + 1]
            )
            assert bool(candidate_BS[b, s]) == fits, (b, s)


def test_anchors_are_distinct_ascending_candidates():
    batch = packed()
    candidate_BS = anchor_candidates(batch)
    some = drawn(batch, 5)
    assert some.kept_BN.all()
    for b in range(2):
        places = some.place_BN[b].tolist()
        assert places == sorted(set(places))
        assert candidate_BS[b, some.place_BN[b]].all()
    assert not torch.equal(some.place_BN, drawn(batch, 5, seed=1).place_BN)
    everything = drawn(batch, 60)
    for b in range(2):
        kept = everything.place_BN[b][everything.kept_BN[b]]
        assert kept.tolist() == candidate_BS[b].nonzero()[:, 0].tolist()


@pytest.mark.parametrize("shifted", [False, True])
def test_blocks_equal_loops(shifted):
    batch, config = packed(), dflash_config(TARGET, shifted=shifted)
    anchors = drawn(batch, 40)  # more than there are: some are not kept
    assert not anchors.kept_BN.all()
    blocks = make_blocks(batch, anchors, config)
    size, row = config.block_size, batch.token_BS.shape[1]
    for b in range(2):
        for n in range(anchors.place_BN.shape[1]):
            anchor = int(anchors.place_BN[b, n])
            for k in range(size):
                q = n * size + k
                expected = int(batch.token_BS[b, anchor]) if k == 0 else config.mask_token_id
                assert int(blocks.token_BQ[b, q]) == expected
                assert int(blocks.rows.position_BQ[b, q]) == int(batch.position_BS[b, anchor]) + k
                slot = k if shifted else k - 1
                assert int(blocks.slot_BQ[b, q]) == slot
                label = anchor + slot + 1
                trained = (
                    bool(anchors.kept_BN[b, n])
                    and slot >= 0
                    and label < row
                    and bool(batch.response_BS[b, label])
                    and bool(batch.document_BS[b, label] == batch.document_BS[b, anchor])
                )
                assert bool(blocks.trained_BQ[b, q]) == trained, (b, n, k)
                if trained:
                    assert int(blocks.label_BQ[b, q]) == int(batch.token_BS[b, label])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [4, 40])
def test_training_mask_equals_loops(kind, count):
    batch, config = packed(), dflash_config(TARGET)
    anchors = drawn(batch, count)
    blocks = make_blocks(batch, anchors, config)
    mask = training_mask(kind, blocks, batch.document_BS, batch.position_BS).tolist()
    documents, places = batch.document_BS.tolist(), anchors.place_BN.tolist()
    size, row = config.block_size, batch.token_BS.shape[1]
    window = math.inf if kind.window is None else kind.window
    for b in range(2):
        for q, seen_T in enumerate(mask[b]):
            n, k = divmod(q, size)
            anchor = places[b][n]
            assert len(seen_T) == row + size * len(places[b])
            for t, found in enumerate(seen_T):
                if t < row:
                    same = documents[b][t] == documents[b][anchor]
                    seen = same and t < anchor and anchor + k - t < window
                else:
                    other, j = divmod(t - row, size)
                    seen = other == n and abs(j - k) < window and (j <= k or not kind.causal)
                assert found == seen, (b, q, t)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [4, 40])
@pytest.mark.parametrize("seed", range(3))
def test_the_mask_by_blocks_is_the_same_mask(kind, count, seed):
    """More anchors than places, so blocks overlap and some are not kept."""
    batch, config = packed(), dflash_config(TARGET)
    blocks = make_blocks(batch, drawn(batch, count, seed), config)
    whole = training_mask(kind, blocks, batch.document_BS, batch.position_BS)
    by_blocks = training_block_mask(kind, blocks, batch.document_BS, batch.position_BS)
    rows, keys = whole.shape[1:]
    assert torch.equal(create_mask(by_blocks.mask_mod, 2, 1, rows, keys, device="cpu")[:, 0], whole)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@torch.no_grad()  # torch differentiates this attention on CUDA alone
@pytest.mark.parametrize("kind", KINDS)
def test_attention_by_blocks_equals_attention_under_the_whole_mask(kind, monkeypatch):
    """The drafter's rows, with two query heads per key head."""
    batch = packed()
    anchors = drawn(batch, 12)
    features = torch.randn(*batch.token_BS.shape, 2 * TARGET.hidden_size, dtype=torch.float64)
    config = dflash_config(TARGET, layers=(kind, KINDS[0]))
    target = tiny_target(TARGET, dtype=torch.float64)
    found = []
    for mask_of in (training_mask, training_block_mask):
        monkeypatch.setattr(spectrain.anchors, "training_mask", mask_of)
        drafter = tiny_drafter(TARGET, config, dtype=torch.float64)
        blocks = make_blocks(batch, anchors, config)
        found.append(draft_rows(drafter, features, target.embed(blocks.token_BQ), blocks, batch))
    torch.testing.assert_close(*found, rtol=EXACT, atol=EXACT)


def hidden_of(batch, anchors, features, token_change=None):
    target, drafter = tiny_target(TARGET), tiny_drafter(TARGET)
    if token_change is not None:
        batch = batch._replace(token_BS=token_change)
    blocks = make_blocks(batch, anchors, drafter.config)
    return draft_rows(drafter, features, target.embed(blocks.token_BQ), blocks, batch)


def test_nothing_at_or_after_the_anchor_leaks_into_its_block():
    batch = packed()
    anchors = drawn(batch, 8)
    size = dflash_config(TARGET).block_size
    features = torch.randn(*batch.token_BS.shape, 2 * TARGET.hidden_size)
    before = hidden_of(batch, anchors, features)
    n = 3
    anchor = int(anchors.place_BN[0, n])
    block = slice(n * size, (n + 1) * size)

    later = features.clone()
    later[0, anchor:] += 1.0
    assert torch.equal(hidden_of(batch, anchors, later)[0, block], before[0, block])

    tokens = batch.token_BS.clone()
    tokens[0, anchor + 1 :] = (tokens[0, anchor + 1 :] + 1) % 60
    assert torch.equal(hidden_of(batch, anchors, features, tokens)[0, block], before[0, block])

    earlier = features.clone()
    earlier[0, anchor - 1] += 1.0
    assert not torch.equal(hidden_of(batch, anchors, earlier)[0, block], before[0, block])

    elsewhere = features.clone()
    elsewhere[0][batch.document_BS[0] != batch.document_BS[0, anchor]] += 1.0
    assert torch.equal(hidden_of(batch, anchors, elsewhere)[0, block], before[0, block])


@pytest.mark.parametrize("kind", KINDS)
def test_training_rows_equal_cached_decoding(kind):
    """A block's rows in a packed batch, and the same block drafted after its prefix went through both caches."""
    config = dflash_config(TARGET, layers=(kind, KINDS[0]))
    target = tiny_target(TARGET, dtype=torch.float64)
    drafter = tiny_drafter(TARGET, config, dtype=torch.float64)
    batch = packed()
    memory = RowsMemory(document_mask(batch.document_BS))
    features = target(batch.token_BS, batch.position_BS, memory, config.target_layers).features_BQF
    anchors = drawn(batch, 6)
    blocks = make_blocks(batch, anchors, config)
    trained = draft_rows(drafter, features, target.embed(blocks.token_BQ), blocks, batch)
    size = config.block_size
    for b, n in [(0, 0), (0, 4), (1, 2), (1, 5)]:
        anchor = int(anchors.place_BN[b, n])
        length = int(batch.position_BS[b, anchor])  # the document's tokens before the anchor
        prefix = batch.token_BS[b, anchor - length : anchor][None]
        positions = torch.arange(length)[None]
        kv = target.new_kv(batch=1, capacity=64)
        seen = torch.arange(64) <= positions[..., None]
        found = target(prefix, positions, CacheMemory(kv, positions, seen), config.target_layers).features_BQF
        cache = drafter.new_kv(batch=1, capacity=64)
        for layer, (key, value) in enumerate(drafter.context_kv(drafter.context(found), positions)):
            cache.write(layer, positions, key, value)
        slots = torch.arange(length, length + size)[None]
        rows = BlockRows(slots, torch.zeros_like(slots), torch.full_like(slots, length))
        key_position = torch.arange(64)[None]
        key_block = torch.where(key_position < length, -1, torch.where(key_position < length + size, 0, 1))
        memories = tuple(
            CacheMemory(cache, slots, block_mask(one, rows, key_position, key_block)) for one in config.layers
        )
        ids = torch.full((1, size), config.mask_token_id)
        ids[0, 0] = batch.token_BS[b, anchor]
        decoded = drafter(target.embed(ids), slots, memories)
        torch.testing.assert_close(trained[b, n * size : (n + 1) * size], decoded[0], atol=EXACT, rtol=EXACT)
