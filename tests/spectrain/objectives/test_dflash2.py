"""The selector's loss is one more weighted cross entropy."""

import pytest
import torch

from spectrain.objectives.dflash2 import selector_loss


def test_the_sum():
    selector, base = torch.tensor([[1.0, 2.0]]), torch.tensor([[10.0, 20.0]])
    weight = torch.tensor([[1.0, 0.5]])
    assert float(selector_loss(selector, base, weight)) == pytest.approx((11 + 0.5 * 22) / 1.5)
    assert float(selector_loss(selector, base, weight, share=0.0)) == pytest.approx((10 + 0.5 * 20) / 1.5)
