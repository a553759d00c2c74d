"""Decoding through the cache equals one full pass: catches wrong positions, masks, slots and leaks between rows."""

import pytest
import torch

from specmodels.kv import CacheMemory, RowsMemory

from doubles.tiny import llama_config, qwen3_config, tiny_target

# fp64: what differs is the order of sums
EXACT = 1e-12


def tokens(batch: int, rows: int, vocab: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(vocab, (batch, rows), generator=torch.Generator().manual_seed(seed))


def positions(batch: int, start: int, rows: int) -> torch.Tensor:
    return torch.arange(start, start + rows).expand(batch, rows)


@pytest.mark.parametrize(
    "config", [qwen3_config(), llama_config(qkv_bias=True, output_bias=True, mlp_bias=True)]
)
@pytest.mark.parametrize("chunks", [[12], [1] * 12, [5, 1, 4, 2]])
def test_cached_decoding_equals_a_full_pass(config, chunks):
    model = tiny_target(config, dtype=torch.float64)
    ids = tokens(2, 12, config.vocab_size)
    full = model(ids, positions(2, 0, 12), RowsMemory(), taps=(0, 2))
    kv = model.new_kv(batch=2, capacity=20)
    kv.key_LBGTH.fill_(1e6)  # unused rows are finite and must not matter
    kv.value_LBGTH.fill_(-1e6)
    start, hidden, features = 0, [], []
    for rows in chunks:
        places = positions(2, start, rows)
        mask = torch.arange(20)[None, None] <= places[..., None]
        out = model(ids[:, start : start + rows], places, CacheMemory(kv, places, mask), taps=(0, 2))
        hidden.append(out.hidden_BQD)
        features.append(out.features_BQF)
        start += rows
    torch.testing.assert_close(torch.cat(hidden, 1), full.hidden_BQD, atol=EXACT, rtol=EXACT)
    torch.testing.assert_close(torch.cat(features, 1), full.features_BQF, atol=EXACT, rtol=EXACT)


def test_rows_of_a_batch_stand_at_lengths_of_their_own():
    model = tiny_target(dtype=torch.float64)
    ids = tokens(2, 9, 61)
    kv = model.new_kv(batch=2, capacity=16)
    lengths = torch.tensor([[7], [3]])
    past = positions(2, 0, 7)
    mask = torch.arange(16)[None, None] <= past[..., None]
    model(ids[:, :7], past, CacheMemory(kv, past, mask))
    nxt = torch.stack([ids[0, 7:8], ids[1, 3:4]])
    out = model(nxt, lengths, CacheMemory(kv, lengths, torch.arange(16)[None, None] <= lengths[..., None]))
    for row, length in enumerate([7, 3]):
        alone = model(ids[row : row + 1, : length + 1], positions(1, 0, length + 1), RowsMemory())
        torch.testing.assert_close(out.hidden_BQD[row, 0], alone.hidden_BQD[0, -1], atol=EXACT, rtol=EXACT)


def test_a_tree_row_sees_its_ancestors_only():
    """Two children of one node share a position; each must score as the chain that ends in it."""
    model = tiny_target(dtype=torch.float64)
    ids = tokens(1, 6, 61)
    kv = model.new_kv(batch=1, capacity=12)
    past = positions(1, 0, 4)
    model(ids[:, :4], past, CacheMemory(kv, past, torch.arange(12)[None, None] <= past[..., None]))
    mask = torch.zeros(1, 2, 12, dtype=torch.bool)
    mask[0, :, :4] = True
    mask[0, 0, 4] = mask[0, 1, 5] = True
    out = model(ids[:, 4:], torch.tensor([[4, 4]]), CacheMemory(kv, torch.tensor([[4, 5]]), mask))
    for row in range(2):
        chain = torch.cat([ids[:, :4], ids[:, 4 + row : 5 + row]], dim=1)
        alone = model(chain, positions(1, 0, 5), RowsMemory())
        torch.testing.assert_close(out.hidden_BQD[0, row], alone.hidden_BQD[0, -1], atol=EXACT, rtol=EXACT)


def test_features_keep_the_order_of_the_taps():
    model = tiny_target()
    ids, places = tokens(1, 3, 61), positions(1, 0, 3)
    ahead = model(ids, places, RowsMemory(), taps=(0, 3)).features_BQF
    behind = model(ids, places, RowsMemory(), taps=(3, 0)).features_BQF
    assert torch.equal(ahead, torch.cat([behind[..., 32:], behind[..., :32]], dim=-1))
    assert model(ids, places, RowsMemory()).features_BQF.shape == (1, 3, 0)


def test_a_tied_head_is_the_embedding():
    tied, untied = tiny_target(), tiny_target(llama_config())
    assert tied.head_VD is tied.embedding
    assert untied.head_VD is not untied.embedding
    hidden = torch.randn(2, 32)
    assert torch.equal(tied.logits(hidden), hidden @ tied.embedding.T)
    assert torch.equal(tied.embed(torch.tensor([3])), tied.embedding[3:4])
