"""The local model's loss against a loop, and the fitted weights against the gradient that must vanish at them."""

import math

import pytest
import torch

from spectrain.objectives.dels import fit_fusion, local_loss


def test_the_loss_equals_the_loop():
    generator = torch.Generator().manual_seed(0)
    local = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64)
    label = torch.randint(6, (3, 4), generator=generator)
    known = torch.rand(3, 4, generator=generator) > 0.4
    total = 0.0
    for m in range(3):
        for k in range(4):
            if known[m, k]:
                row = local[m, k].tolist()
                total += math.log(sum(math.exp(x) for x in row)) - row[int(label[m, k])]
    assert float(local_loss(local, label, known)) == pytest.approx(total / int(known.sum()), abs=1e-9)


def test_the_fitted_weights_are_the_best_there_are():
    generator = torch.Generator().manual_seed(1)
    base, local = torch.randn(2, 400, 9, generator=generator, dtype=torch.float64)
    unigram = torch.rand(9, generator=generator, dtype=torch.float64).log()
    law = (base + 0.6 * local - 0.4 * unigram).softmax(-1)
    label = torch.multinomial(law, 1, generator=generator)[:, 0]
    found = fit_fusion(base, local, unigram, label)

    def loss(alpha, beta):
        return torch.nn.functional.cross_entropy(base + alpha * local - beta * unigram, label)

    alpha = torch.tensor(found.alpha, dtype=torch.float64, requires_grad=True)
    beta = torch.tensor(found.beta, dtype=torch.float64, requires_grad=True)
    loss(alpha, beta).backward()
    assert abs(float(alpha.grad)) < 1e-8
    assert abs(float(beta.grad)) < 1e-8
    best = float(loss(found.alpha, found.beta))
    for shift in (-0.05, 0.05):
        assert float(loss(found.alpha + shift, found.beta)) > best
        assert float(loss(found.alpha, found.beta + shift)) > best
    # within what 400 draws can tell
    assert found.alpha == pytest.approx(0.6, abs=0.2)
    assert found.beta == pytest.approx(0.4, abs=0.3)
