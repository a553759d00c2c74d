"""Packing loses no token, keeps documents apart and depends on the seed and the step alone."""

import dataclasses

import numpy as np
import pytest
import torch

from spectrain.data import (
    PADDING,
    PackedRows,
    concatenate,
    document_mask,
    pack,
    plan_rows,
    read_shard,
    shard_hash,
    split_documents,
    write_shard,
)

from doubles.corpora import random_shard


def test_every_document_is_in_exactly_one_row():
    shard = random_shard(200)
    rows = plan_rows(shard.lengths, np.random.default_rng(1).permutation(200), 40, open_rows=8)
    assert sorted(index for row in rows for index in row) == list(range(200))
    assert max(sum(int(shard.lengths[index]) for index in row) for row in rows) <= 40
    # random lengths up to 24 in rows of 40: a packer that never looks back fills about 0.75
    assert int(shard.lengths.sum()) / (40 * len(rows)) > 0.9


def test_packed_rows_hold_the_documents_token_by_token():
    shard = random_shard(4)
    batch = pack(shard, [[2, 0], [1]], 50)
    for row, members in enumerate([[2, 0], [1]]):
        place = 0
        for index in members:
            for offset, token in enumerate(shard.document(index).tolist()):
                assert int(batch.token_BS[row, place]) == token
                assert int(batch.document_BS[row, place]) == index
                assert int(batch.position_BS[row, place]) == offset
                assert bool(batch.response_BS[row, place]) == (offset >= int(shard.prompt_lengths[index]))
                place += 1
        assert (batch.document_BS[row, place:] == PADDING).all()
        assert not batch.response_BS[row, place:].any()


def test_document_mask_equals_loops():
    document_BS = torch.tensor([[3, 3, 1, 1, PADDING], [0, 0, 0, 0, 0]])
    mask = document_mask(document_BS)
    for b in range(2):
        for q in range(5):
            for t in range(5):
                same = document_BS[b, q] == document_BS[b, t]
                assert bool(mask[b, q, t]) == bool(same and t <= q), (b, q, t)


def test_batches_depend_on_seed_and_step_alone():
    shard = random_shard(60)
    rows = PackedRows(shard, batch=3, row=30, seed=5)
    steps = [0, 7, 1, 2 * rows.num_batches + 1, 7]
    found = [rows.batch(step).token_BS for step in steps]
    fresh = [PackedRows(shard, batch=3, row=30, seed=5).batch(step).token_BS for step in steps]
    assert all(torch.equal(one, other) for one, other in zip(found, fresh, strict=True))
    assert torch.equal(found[1], found[4])
    assert not torch.equal(PackedRows(shard, batch=3, row=30, seed=6).batch(0).token_BS, found[0])
    # another epoch is another order
    assert not torch.equal(rows.batch(1).token_BS, rows.batch(1 + rows.num_batches).token_BS)


def test_a_shard_survives_the_disk_and_its_hash_sees_every_part(tmp_path):
    shard = random_shard()
    write_shard(tmp_path, "train", shard)
    assert shard_hash(read_shard(tmp_path, "train")) == shard_hash(shard)
    changed = dataclasses.replace(shard, prompt_lengths=shard.prompt_lengths + 1)
    assert shard_hash(changed) != shard_hash(shard)


def test_split_is_by_whole_documents():
    shard = random_shard(40)
    train, held_out = split_documents(shard, 0.25, seed=3)
    assert (len(train), len(held_out)) == (30, 10)
    texts = [shard.document(index).tobytes() for index in range(40)]
    parts = [part.document(index).tobytes() for part in (train, held_out) for index in range(len(part))]
    assert sorted(texts) == sorted(parts)


def test_errors_say_what_to_do(tmp_path):
    shard = random_shard()
    with pytest.raises(ValueError, match="use longer rows"):
        PackedRows(shard, batch=1, row=10, seed=0)
    with pytest.raises(ValueError, match="use smaller batches"):
        PackedRows(shard, batch=1000, row=30, seed=0)
    with pytest.raises(ValueError, match="make the corpus first"):
        read_shard(tmp_path, "train")
    with pytest.raises(ValueError, match="write the shard again"):
        dataclasses.replace(shard, domains=shard.domains[1:])


def test_concatenated_shards_keep_every_document():
    one, other = random_shard(5), random_shard(3, seed=1)
    both = concatenate([one, other])
    for index in range(8):
        shard, place = (one, index) if index < 5 else (other, index - 5)
        assert both.document(index).tolist() == shard.document(place).tolist()
        assert both.prompt_lengths[index] == shard.prompt_lengths[place]
        assert both.domains[index] == shard.domains[place]
