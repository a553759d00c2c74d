"""xPress's sum, by hand."""

import pytest
import torch

from spectrain.objectives.xpress import xpress_loss


def test_the_sum():
    rounds = [torch.tensor(1.0), torch.tensor(2.0), torch.tensor(6.0)]
    found = xpress_loss(torch.tensor(5.0), rounds, torch.tensor(10.0))
    assert float(found) == pytest.approx(5 + 0.3 * 3 + 0.6 * 10)
