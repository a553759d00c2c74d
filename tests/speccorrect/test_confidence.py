"""Calibration error by hand, and temperatures that undo a known distortion."""

import pytest
import torch

from speccorrect.confidence import GRID, calibration_error, fit_temperatures


def test_the_error_is_the_mean_gap_of_the_bins():
    predicted = torch.tensor([0.15, 0.15, 0.85, 0.85])
    happened = torch.tensor([False, True, True, True])
    # two bins of two: |0.30 - 1| and |1.70 - 2|, over four blocks
    assert float(calibration_error(predicted, happened)) == pytest.approx((0.7 + 0.3) / 4)
    assert float(calibration_error(torch.tensor([1.0, 0.0]), torch.tensor([True, False]))) == 0.0


def test_sequential_temperatures_undo_a_distortion():
    generator = torch.Generator().manual_seed(7)
    true_MK = torch.randn(40_000, 3, generator=generator) * 1.5 + 1.0
    distortion = torch.tensor([2.0, 0.5, 4.0])  # logits too steep, too flat, far too steep
    coin_MK = torch.rand(true_MK.shape, generator=generator)
    accepted_M = (coin_MK < torch.sigmoid(true_MK)).long().cumprod(dim=1).sum(dim=1)
    known_M = torch.randint(1, 4, accepted_M.shape, generator=generator)
    found = fit_temperatures(true_MK * distortion, accepted_M.minimum(known_M), known_M)
    # within a step of the grid
    assert (found.log2() - distortion.log2()).abs().max() <= 1 / 8 + 1e-6
    assert set(found.tolist()) <= {float(torch.tensor(value)) for value in GRID}


def test_depths_that_nothing_is_known_of_get_some_temperature():
    assert torch.isfinite(
        fit_temperatures(torch.zeros(2, 3), torch.tensor([1, 0]), torch.tensor([1, 1]))
    ).all()
