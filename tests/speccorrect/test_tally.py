"""Running calibration: its arithmetic in plain Python, and that it finds the truth of a drafter that is off."""

import pytest
import torch

from speccorrect.tally import EVIDENCE, FADE, SUREST, Tally, calibrated, cells, observe


def test_without_evidence_a_prediction_stands():
    step = torch.tensor([[0.0, 0.1, 0.5, 0.99, 1.0]])
    cell = cells(step, torch.tensor([[1, 2, 3, 3, 3]]))
    found = calibrated(step, cell, Tally.fresh(1, 3))
    torch.testing.assert_close(found, step.clamp(max=SUREST))


def test_the_ratio_by_hand():
    tally = Tally.fresh(2, 2)
    step = torch.tensor([[0.5, 0.6, 0.1], [0.5, 0.6, 0.1]])
    depth = torch.tensor([[1, 2, 2], [1, 2, 2]])
    cell = cells(step, depth)
    reached = torch.tensor([[True, True, True], [True, False, False]])
    accepted = torch.tensor([[True, False, False], [False, False, False]])
    for _ in range(2):
        observe(tally, step, cell, reached, accepted)
    # 0.5 and 0.6 share a bin; the first request saw one hit there at depth 1 and none at depth 2, twice, once faded
    twice = 1 + FADE
    pooled = (twice + EVIDENCE) / (twice * 1.1 + EVIDENCE)
    first = (twice + EVIDENCE * pooled) / (twice * 0.5 + EVIDENCE)
    second = EVIDENCE * pooled / (twice * 0.6 + EVIDENCE)
    third = EVIDENCE * (EVIDENCE / (twice * 0.1 + EVIDENCE)) / (twice * 0.1 + EVIDENCE)
    alone = EVIDENCE / (twice * 0.5 + EVIDENCE)
    fourth = EVIDENCE * alone / (twice * 0.5 + EVIDENCE)
    expected = torch.tensor([[0.5 * first, 0.6 * second, 0.1 * third], [0.5 * fourth, 0.6 * alone, 0.1]])
    torch.testing.assert_close(calibrated(step, cell, tally), expected)


def test_what_the_walk_did_not_try_and_other_rows_leave_no_trace():
    tally = Tally.fresh(2, 2)
    step, depth = torch.full((2, 2), 0.5), torch.tensor([[1, 2], [1, 2]])
    cell = cells(step, depth)
    observe(
        tally, step, cell, torch.tensor([[True, True], [False, False]]), torch.ones(2, 2, dtype=torch.bool)
    )
    assert float(tally.predicted_BKX[1].sum()) == 0
    tally.clear(0)
    assert float(tally.predicted_BKX.sum() + tally.accepted_BKX.sum()) == 0


@pytest.mark.parametrize("factor", [0.5, 1.2])
def test_a_drafter_that_is_off_by_a_factor_is_corrected(factor):
    generator = torch.Generator().manual_seed(2)
    rows, rounds = 400, 60
    tally = Tally.fresh(rows, 1)
    for _ in range(rounds):
        step = torch.rand(rows, 1, generator=generator) * 0.3 + 0.4
        cell = cells(step, torch.ones(rows, 1, dtype=torch.int64))
        hit = torch.rand(rows, 1, generator=generator) < step * factor
        observe(tally, step, cell, torch.ones_like(hit), hit)
    step = torch.full((rows, 1), 0.6)
    found = calibrated(step, cells(step, torch.ones(rows, 1, dtype=torch.int64)), tally)
    assert float(found.mean()) == pytest.approx(0.6 * factor, rel=0.1)


def test_the_memory_is_bounded_and_forgets():
    tally = Tally.fresh(1, 1)
    step, cell = torch.full((1, 1), 0.5), cells(torch.full((1, 1), 0.5), torch.tensor([[1]]))
    always, never = torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1, dtype=torch.bool)
    for _ in range(2000):
        observe(tally, step, cell, always, always)
    assert float(tally.predicted_BKX.sum()) <= 0.5 / (1 - FADE) + 1e-3
    for _ in range(150):
        observe(tally, step, cell, always, never)
    assert float(calibrated(step, cell, tally)) < 0.3
