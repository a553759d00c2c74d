"""Accepted paths to output by hand examples: the cut, the counters, the compaction, the hand-over of features."""

import pytest
import torch

from speccorrect.products import Verdict
from speccorrect.tree import build_tree
from specrun import Sampling
from specrun.stages.commit import commit
from specrun.state import allocate

from doubles.engines import small_drafter, small_target

LENGTH = 3
"""The anchor's position in every row."""


def tree_of(batch):
    """Tokens 20 (anchor) -> 21 -> 23 -> 24, and 22 beside 21; nodes 0, 1, 3, 4 and 2."""
    tokens = torch.tensor([[20, 21, 22, 23, 24]]).repeat(batch, 1)
    parent = torch.tensor([[0, 0, 0, 1, 3]]).repeat(batch, 1)
    ones = torch.ones_like(tokens, dtype=torch.bool)
    return build_tree(tokens, parent, ones, torch.zeros(batch, 5), levels=3)


def verdict_of(*rows):
    """(accepted path, bonus) per row."""
    paths = [path + [path[-1]] * (5 - len(path)) for path, _ in rows]
    counts = [len(path) for path, _ in rows]
    return Verdict(torch.tensor(paths), torch.tensor(counts), torch.tensor([bonus for _, bonus in rows]))


def committed(*rows, budget=10, stop_ids=(), done=(), path=4):
    target = small_target()
    drafter = small_drafter(target)
    state = allocate(target, drafter, batch=len(rows), capacity=16, path=path, penalties=True)
    for row in range(len(rows)):
        state.admit(row, Sampling(max_new_tokens=budget), stop_ids, row)
        state.done_B[row] = row in done
    state.length_B.fill_(LENGTH)
    state.tokens_BT[:, LENGTH] = 20
    # cache row r holds r, feature row r holds 100 + r
    for buffer in (state.target_kv.key_LBGTH, state.target_kv.value_LBGTH):
        buffer.copy_(torch.arange(16)[:, None].expand_as(buffer))
    features = (
        torch.arange(100, 105).double()[None, :, None].expand(len(rows), 5, state.features_BPF.shape[2])
    )
    result = commit(state, tree_of(len(rows)), verdict_of(*rows), features, branches=True, penalties=True)
    return state, result


def new_tokens(state, result):
    return [
        state.tokens_BT[row, LENGTH + 1 : LENGTH + 1 + count].tolist()
        for row, count in enumerate(result.count_B.tolist())
    ]


def test_paths_are_followed_by_the_bonus():
    state, result = committed(([0, 1, 3], 7), ([0], 8), ([0, 2], 9))
    assert new_tokens(state, result) == [[21, 23, 7], [8], [22, 9]]
    assert result.accepted_B.tolist() == [2, 0, 1]
    assert state.length_B.tolist() == [LENGTH + 3, LENGTH + 1, LENGTH + 2]
    assert state.anchor_B().tolist() == [7, 8, 9]
    assert state.remaining_B.tolist() == [7, 9, 8]
    assert not result.stopped_B.any()
    assert not result.done_B.any()


def test_the_cache_is_compacted_to_the_path():
    state, _ = committed(([0, 1, 3, 4], 7), ([0, 2], 9))
    for buffer in (state.target_kv.key_LBGTH, state.target_kv.value_LBGTH):
        assert buffer[0, 0, 0, : LENGTH + 4, 0].tolist() == [0, 1, 2, 3, 4, 6, 7]
        assert buffer[1, 1, 1, : LENGTH + 2, 0].tolist() == [0, 1, 2, 3, 5]


def test_features_of_the_path_are_handed_on():
    state, _ = committed(([0, 1, 3, 4], 7), ([0, 2], 9))
    assert state.features_BPF[0, :, 0].tolist() == [100, 101, 103, 104]
    assert state.features_BPF[1, :2, 0].tolist() == [100, 102]
    assert state.features_start_B.tolist() == [LENGTH, LENGTH]
    assert state.features_count_B.tolist() == [4, 2]


@pytest.mark.parametrize(
    ("stops", "budget", "kept", "stopped"),
    [
        ((23,), 10, [21, 23], True),
        ((24, 21), 10, [21], True),
        ((7,), 10, [21, 23, 24, 7], True),
        ((20, 22), 10, [21, 23, 24, 7], False),  # the anchor and a rejected branch are no output
        ((), 2, [21, 23], False),
        ((), 4, [21, 23, 24, 7], False),
        ((23,), 2, [21, 23], True),
        ((24,), 2, [21, 23], False),
        ((21,), 1, [21], True),
    ],
)
def test_the_first_of_stop_and_budget_cuts(stops, budget, kept, stopped):
    state, result = committed(([0, 1, 3, 4], 7), stop_ids=stops, budget=budget)
    assert new_tokens(state, result) == [kept]
    assert result.stopped_B.tolist() == [stopped]
    assert result.done_B.tolist() == [stopped or len(kept) == budget]
    assert state.remaining_B.tolist() == [budget - len(kept)]
    assert state.features_count_B.tolist() == [len(kept)]
    counted = state.output_BV[0].nonzero().flatten().tolist()
    assert counted == sorted(kept)


def test_a_stop_id_behind_the_path_does_not_count():
    state, result = committed(([0, 1], 7), stop_ids=(24, 23))
    assert new_tokens(state, result) == [[21, 7]]
    assert not result.stopped_B.any()


def test_a_row_that_is_done_keeps_everything():
    state, result = committed(([0, 1], 7), ([0, 1], 7), done=(1,))
    assert result.count_B.tolist() == [2, 0]
    assert state.length_B.tolist() == [LENGTH + 2, LENGTH]
    assert state.features_count_B.tolist() == [2, 1]
    assert state.features_BPF[1].abs().sum() == 0
    assert state.output_BV[1].sum() == 0
    assert result.stopped_B.tolist() == [False, False]


def test_repeated_tokens_of_a_path_are_all_counted():
    state, result = committed(([0, 1], 21))
    assert new_tokens(state, result) == [[21, 21]]
    assert state.output_BV[0, 21] == 2
