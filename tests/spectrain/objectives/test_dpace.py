"""D-PACE's weights against the triple loop and against autograd of the surrogate, and its three normalisations."""

import pytest
import torch

from spectrain.objectives.dpace import dpace_loss, dpace_weights, expected_length


def example():
    generator = torch.Generator().manual_seed(0)
    nll = 2 * torch.rand(4, 6, generator=generator, dtype=torch.float64)
    valid = torch.arange(6) < torch.tensor([6, 4, 0, 1])[:, None]
    return nll, valid


def loop(nll, valid, alpha):
    weight = torch.zeros_like(nll)
    for m in range(nll.shape[0]):
        for j in range(nll.shape[1]):
            if not valid[m, j]:
                continue
            for last in range(j, nll.shape[1]):
                if not valid[m, last]:
                    continue
                product = 1.0
                for i in range(last + 1):
                    if valid[m, i]:
                        product *= (1 - alpha) * float(torch.exp(-nll[m, i])) + alpha
                weight[m, j] += product
    return weight


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_weights_equal_the_loop(alpha):
    nll, valid = example()
    torch.testing.assert_close(dpace_weights(nll, valid, alpha), loop(nll, valid, alpha), rtol=0, atol=1e-9)


def test_weights_are_the_gradient_of_the_surrogate():
    nll, valid = example()
    nll.requires_grad_()
    (gradient,) = torch.autograd.grad(expected_length(nll, valid), nll)
    torch.testing.assert_close(-gradient, dpace_weights(nll, valid, 0.0), rtol=0, atol=1e-9)
    # so the weighted cross entropy moves the drafter as the expected length does
    (moved,) = torch.autograd.grad(dpace_loss(nll, valid, alpha=0.0) * valid.sum(), nll)
    torch.testing.assert_close(moved, -gradient, rtol=0, atol=1e-9)


def test_weights_fall_along_a_block_and_count_slots_at_alpha_one():
    nll, valid = example()
    weight = dpace_weights(nll, valid)
    assert not weight.requires_grad
    assert bool((weight.diff(dim=1) <= 0).all())
    assert dpace_weights(nll, valid, 1.0)[0].tolist() == [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]


def test_invalid_slots_change_nothing():
    nll, valid = example()
    other = torch.where(valid, nll, torch.tensor(float("inf"), dtype=torch.float64))
    longer = torch.cat([other, torch.full((4, 3), 9.0, dtype=torch.float64)], dim=1)
    longer_valid = torch.cat([valid, torch.zeros(4, 3, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(dpace_loss(longer, longer_valid), dpace_loss(nll, valid))


def test_three_normalisations():
    nll, valid = example()
    weight = loop(nll, valid, 0.5)
    total = float((weight * nll).sum())
    assert float(dpace_loss(nll, valid)) == pytest.approx(total / int(valid.sum()), abs=1e-9)
    assert float(dpace_loss(nll, valid, normalisation="weights")) == pytest.approx(
        total / float(weight.sum()), abs=1e-9
    )
    assert float(dpace_loss(nll, valid, normalisation="sequences", sequences=3)) == pytest.approx(
        total / 3, abs=1e-9
    )
    with pytest.raises(ValueError, match="sequences"):
        dpace_loss(nll, valid, normalisation="sequences")


def test_alpha_has_bounds():
    nll, valid = example()
    with pytest.raises(ValueError, match="alpha"):
        dpace_weights(nll, valid, 1.1)
