"""Prompts into caches: chunks leave no seam, and the drafter sees the features of every prompt token."""

import pytest
import torch

from speccorrect.law import LawPlan
from specmodels.kv import RowsMemory
from specrun import Sampling
from specrun.stages import prefill as prefill_module
from specrun.stages.prefill import prefill
from specrun.state import allocate

from doubles.engines import device_tensors, small_drafter, small_target

PLAN = LawPlan(filters=False, penalties=True, noise=False)
PROMPT = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])
CLOSE = 1e-12  # float64 sums over other shapes, on values of order 1


def filled(row=0, **sampling):
    target = small_target()
    drafter = small_drafter(target)
    state = allocate(target, drafter, batch=2, capacity=24, path=6, penalties=True)
    state.admit(row, Sampling(max_new_tokens=5, **sampling), sampling.get("stop_ids", ()), 0)
    first = prefill(state, target, drafter, row, PROMPT, PLAN)
    return state, first, target, drafter


@pytest.mark.parametrize("chunk", [1, 4, 10, 11, 12])
def test_chunks_leave_no_seam(chunk, monkeypatch):
    whole, first, _, _ = filled()
    monkeypatch.setattr(prefill_module, "CHUNK", chunk)
    state, again, _, _ = filled()
    assert again == first
    for name, tensor in device_tensors(state).items():
        torch.testing.assert_close(tensor, device_tensors(whole)[name], rtol=0, atol=CLOSE)


def test_the_drafter_gets_the_features_of_the_whole_prompt():
    state, _, target, drafter = filled()
    length = len(PROMPT)
    positions = torch.arange(length)[None]
    with torch.no_grad():
        features = target(PROMPT[None], positions, RowsMemory(), drafter.config.target_layers).features_BQF
        rows = drafter.context_kv(drafter.context(features), positions)
    for layer, (key, value) in enumerate(rows):
        torch.testing.assert_close(state.draft_kv.key_LBGTH[layer, :1, :, :length], key, rtol=0, atol=CLOSE)
        torch.testing.assert_close(
            state.draft_kv.value_LBGTH[layer, :1, :, :length], value, rtol=0, atol=CLOSE
        )
    torch.testing.assert_close(state.features_BPF[0, 0], features[0, -1], rtol=0, atol=CLOSE)
    assert (int(state.features_start_B[0]), int(state.features_count_B[0])) == (length - 1, 1)


def test_one_row_is_filled_and_the_others_are_left_alone():
    state, (first, done), _, _ = filled(row=1)
    assert state.length_B.tolist() == [0, len(PROMPT)]
    assert state.tokens_BT[1, : len(PROMPT) + 1].tolist() == [*PROMPT.tolist(), first]
    assert not done
    assert state.remaining_B.tolist()[1] == 4
    assert state.target_kv.key_LBGTH[:, 0].abs().sum() == 0
    assert state.draft_kv.key_LBGTH[:, 0].abs().sum() == 0
    assert state.tokens_BT[0].sum() == 0
    assert state.prompt_BV[0].sum() == state.output_BV[0].sum() == 0


def test_penalties_know_prompt_and_first_token():
    state, (first, _), _, _ = filled()
    assert state.prompt_BV[0].nonzero().flatten().tolist() == sorted(set(PROMPT.tolist()))
    assert state.output_BV[0].nonzero().flatten().tolist() == [first]


def test_a_first_token_that_stops_is_seen():
    _, (first, _), _, _ = filled()
    state, (_, done), _, _ = filled(stop_ids=(30, first))
    assert done
    assert state.done_B.tolist()[0]
