"""The weighted mean, where values without weight may be anything."""

import torch

from spectrain.objectives.weighting import weighted_mean


def test_values_without_weight_do_not_count_whatever_they_are():
    value = torch.tensor([1.0, float("inf"), 4.0, float("nan")], requires_grad=True)
    mean = weighted_mean(value, torch.tensor([1.0, 0.0, 0.5, 0.0]))
    torch.testing.assert_close(mean.detach(), torch.tensor(2.0))
    mean.backward()
    torch.testing.assert_close(value.grad, torch.tensor([2 / 3, 0.0, 1 / 3, 0.0]))


def test_nothing_to_learn_is_zero():
    assert float(weighted_mean(torch.ones(3), torch.zeros(3))) == 0.0
