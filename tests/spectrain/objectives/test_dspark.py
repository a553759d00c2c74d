"""DSpark's three terms against loops in fp64."""

import math

import pytest
import torch

from spectrain.objectives.dspark import confidence_loss, dspark_loss, prediction_loss


def example():
    generator = torch.Generator().manual_seed(0)
    log_q, log_p = torch.randn(2, 3, 4, 6, generator=generator, dtype=torch.float64).mul(2).log_softmax(-1)
    label = torch.randint(6, (3, 4), generator=generator)
    weight, logit = torch.rand(2, 3, 4, generator=generator, dtype=torch.float64)
    weight[1, 2:] = 0
    return log_q, log_p, label, logit * 4 - 2, weight


def test_it_equals_the_loops():
    log_q, log_p, label, logit, weight = example()
    entropy = distance = confidence = norm = 0.0
    for m in range(3):
        for k in range(4):
            w = float(weight[m, k])
            q, p = log_q[m, k].exp().tolist(), log_p[m, k].exp().tolist()
            l1 = sum(abs(a - b) for a, b in zip(q, p, strict=True))
            c = 1 / (1 + math.exp(-float(logit[m, k])))
            truth = 1 - l1 / 2
            entropy -= w * math.log(q[int(label[m, k])])
            distance += w * l1
            confidence -= w * (truth * math.log(c) + (1 - truth) * math.log(1 - c))
            norm += w
    expected = (0.1 * entropy + 0.9 * distance + confidence) / norm
    assert float(dspark_loss(log_q, log_p, label, logit, weight)) == pytest.approx(expected, abs=1e-9)
    assert float(prediction_loss(log_q, log_p, label, weight)) == pytest.approx(
        (0.1 * entropy + 0.9 * distance) / norm, abs=1e-9
    )


def test_confidence_teaches_the_confidence_alone():
    log_q, log_p, _, logit, weight = example()
    log_q.requires_grad_()
    logit.requires_grad_()
    confidence_loss(logit, log_q, log_p, weight).backward()
    assert log_q.grad is None
    assert float(logit.grad.abs().sum()) > 0


def test_equal_distributions_are_certain():
    log_q, _, _, logit, weight = example()
    sure = confidence_loss(torch.full_like(logit, 30.0), log_q, log_q, weight)
    assert float(sure) == pytest.approx(0.0, abs=1e-9)
