"""The static cache against plain Python lists: catches a wrong axis, a move that reads what it has already written."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specmodels.kv import CacheMemory, ContextMemory, RowsMemory, StaticKV

LAYERS, GROUPS, CAPACITY, WIDTH = 2, 2, 9, 3
# one row of a batch is written in another way than several
BATCHES = st.integers(1, 3)


def filled(seed: int, batch: int = 2) -> StaticKV:
    kv = StaticKV(
        layers=LAYERS, batch=batch, kv_heads=GROUPS, capacity=CAPACITY, head_dim=WIDTH, dtype=torch.float32
    )
    generator = torch.Generator().manual_seed(seed)
    kv.key_LBGTH.copy_(torch.randn(kv.key_LBGTH.shape, generator=generator))
    kv.value_LBGTH.copy_(torch.randn(kv.value_LBGTH.shape, generator=generator))
    return kv


def slots(count: int, batch: int) -> st.SearchStrategy:
    return st.lists(
        st.permutations(range(CAPACITY)).map(lambda order: order[:count]), min_size=batch, max_size=batch
    )


@settings(deadline=None)
@given(
    seed=st.integers(0, 999),
    batch=BATCHES,
    rows=st.integers(1, CAPACITY),
    layer=st.integers(0, LAYERS - 1),
    data=st.data(),
)
def test_write_puts_each_row_where_it_belongs_and_nothing_else(seed, batch, rows, layer, data):
    where = data.draw(slots(rows, batch))
    kv = filled(seed, batch)
    expected = [buffer.clone() for buffer in (kv.key_LBGTH, kv.value_LBGTH)]
    new = torch.randn(2, batch, GROUPS, rows, WIDTH, generator=torch.Generator().manual_seed(seed + 1))
    for buffer, source in zip(expected, new, strict=True):
        for b in range(batch):
            for row, slot in enumerate(where[b]):
                buffer[layer, b, :, slot] = source[b, :, row]
    kv.write(layer, torch.tensor(where), new[0], new[1])
    assert torch.equal(kv.key_LBGTH, expected[0])
    assert torch.equal(kv.value_LBGTH, expected[1])


@settings(deadline=None)
@given(seed=st.integers(0, 999), batch=BATCHES, rows=st.integers(1, CAPACITY), data=st.data())
def test_move_reads_all_sources_before_it_writes(seed, batch, rows, data):
    source, target = data.draw(slots(rows, batch)), data.draw(slots(rows, batch))
    kv = filled(seed, batch)
    before = [buffer.clone() for buffer in (kv.key_LBGTH, kv.value_LBGTH)]
    expected = [buffer.clone() for buffer in before]
    for buffer, old in zip(expected, before, strict=True):
        for b in range(batch):
            for a, z in zip(source[b], target[b], strict=True):
                buffer[:, b, :, z] = old[:, b, :, a]
    kv.move(torch.tensor(source), torch.tensor(target))
    assert torch.equal(kv.key_LBGTH, expected[0])
    assert torch.equal(kv.value_LBGTH, expected[1])


def test_move_may_name_a_source_twice():
    kv = filled(0)
    old = kv.key_LBGTH.clone()
    kv.move(torch.tensor([[3, 3], [0, 1]]), torch.tensor([[5, 6], [0, 1]]))
    assert torch.equal(kv.key_LBGTH[:, 0, :, 5], old[:, 0, :, 3])
    assert torch.equal(kv.key_LBGTH[:, 0, :, 6], old[:, 0, :, 3])
    assert torch.equal(kv.key_LBGTH[:, 1], old[:, 1])


def test_a_new_cache_is_finite_everywhere():
    kv = StaticKV(layers=1, batch=1, kv_heads=1, capacity=4, head_dim=2, dtype=torch.bfloat16)
    assert kv.capacity == 4
    assert not kv.key_LBGTH.any()
    assert not kv.value_LBGTH.any()


def test_cache_memory_shows_as_many_rows_as_its_mask_has_columns():
    kv = filled(1)
    new = torch.ones(2, GROUPS, 1, WIDTH)
    memory = CacheMemory(kv, torch.tensor([[4], [2]]), torch.ones(2, 1, 6, dtype=torch.bool))
    key, value = memory.join(1, new, new * 2)
    assert key.shape == (2, GROUPS, 6, WIDTH)
    assert torch.equal(key[0, :, 4], torch.ones(GROUPS, WIDTH))
    assert torch.equal(value[1, :, 2], torch.full((GROUPS, WIDTH), 2.0))
    assert key.data_ptr() == kv.key_LBGTH[1].data_ptr(), "a view of the cache, not a copy"


def test_memories_without_a_cache():
    new_key, new_value, key, value = torch.randn(4, 1, 1, 2, 3)
    assert RowsMemory().join(0, new_key, new_value) == (new_key, new_value)
    assert RowsMemory().mask_BQT is None
    memory = ContextMemory(((value, key), (key, value)), torch.ones(1, 2, 4, dtype=torch.bool))
    joined_key, joined_value = memory.join(1, new_key, new_value)
    assert torch.equal(joined_key, torch.cat([key, new_key], dim=2))
    assert torch.equal(joined_value, torch.cat([value, new_value], dim=2))
