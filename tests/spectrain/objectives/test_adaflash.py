"""AdaFlash's terms and the loss of its length head against loops in fp64, gradients included."""

import math

import pytest
import torch

from spectrain.objectives.adaflash import adaflash_terms, length_loss, length_target

CLOSE = 1e-9  # fp64 sums of a few dozen terms in another order


def example():
    generator = torch.Generator().manual_seed(0)
    logits, target = 3 * torch.randn(2, 3, 4, 6, generator=generator, dtype=torch.float64)
    weight = torch.rand(3, 4, generator=generator, dtype=torch.float64)
    weight[1, 2:] = 0
    return logits.requires_grad_(), target.log_softmax(-1), weight


@pytest.mark.parametrize("clip", [math.inf, 1.5])
def test_the_mix_and_its_gradient_equal_the_loops(clip):
    """d CE / d logits = q - onehot(best); d RKL / d logits = q (log q/p - RKL), and none where it is clipped."""
    logits, log_p, weight = example()
    found = adaflash_terms(logits.log_softmax(-1), log_p, weight, clip)
    found.mixed().backward()
    hard = divergence = clipped = 0.0
    gradient, total = torch.zeros_like(logits), float(weight.sum())
    for m in range(3):
        for k in range(4):
            share = float(weight[m, k]) / total
            row = [float(x) for x in logits[m, k].detach()]
            norm = sum(math.exp(x) for x in row)
            q = [math.exp(x) / norm for x in row]
            p = [math.exp(float(x)) for x in log_p[m, k]]
            best = p.index(max(p))
            kl = sum(a * math.log(a / b) for a, b in zip(q, p, strict=True))
            out = kl > clip
            hard -= share * math.log(q[best])
            divergence += share * (clip if out else kl)
            clipped += share * out
            for v in range(6):
                gradient[m, k, v] += 0.8 * share * (q[v] - (v == best))
                if not out:
                    gradient[m, k, v] += 0.2 * share * q[v] * (math.log(q[v] / p[v]) - kl)
    assert float(found.hard.detach()) == pytest.approx(hard, abs=CLOSE)
    assert float(found.divergence.detach()) == pytest.approx(divergence, abs=CLOSE)
    assert float(found.clipped) == pytest.approx(clipped, abs=CLOSE)
    assert (0 < clipped < 1) == (clip == 1.5)
    assert float(found.mixed().detach()) == pytest.approx(0.8 * hard + 0.2 * divergence, abs=CLOSE)
    torch.testing.assert_close(logits.grad, gradient, rtol=0, atol=CLOSE)


def test_the_hard_label_is_the_targets_best_token():
    log_p = torch.tensor([[[0.2, 0.7, 0.1]]]).log()
    log_q = torch.tensor([[[0.5, 0.25, 0.25]]]).log()
    found = adaflash_terms(log_q, log_p, torch.ones(1, 1))
    assert float(found.hard) == pytest.approx(math.log(4))


def test_lengths_worth_verifying():
    """The worked examples: nothing, three and all of a block of sixteen rows accepted."""
    assert length_target(torch.tensor([0, 3, 15]), 16).tolist() == [1 / 16, 4 / 16, 1.0]


def test_the_length_loss_and_its_gradient_equal_the_loop():
    logit = torch.tensor([-1.0, 0.3, 2.0, 9.0], dtype=torch.float64, requires_grad=True)
    accepted, valid = torch.tensor([0, 4, 7, 1]), torch.tensor([True, True, True, False])
    length_loss(logit, accepted, valid, 8).backward()
    loss, gradient = 0.0, [0.0] * 4
    for place, (x, count) in enumerate(zip(logit.tolist()[:3], (1, 5, 8), strict=True)):
        share = 1 / (1 + math.exp(-x))
        loss += (share - count / 8) ** 2 / 3
        gradient[place] = 2 * (share - count / 8) * share * (1 - share) / 3
    # the label is in single precision
    assert float(length_loss(logit.detach(), accepted, valid, 8)) == pytest.approx(loss, abs=1e-7)
    assert logit.grad.tolist() == pytest.approx(gradient, abs=1e-7)
