"""Every divergence against loops over the vocabulary in fp64, and the gradients that its formula states."""

import math

import pytest
import torch

from spectrain.objectives import divergences

CLOSE = 1e-9  # fp64 sums of a dozen terms in another order


def rows(seed: int = 0, count: int = 5, vocab: int = 7):
    generator = torch.Generator().manual_seed(seed)
    q, p = torch.randn(2, count, vocab, generator=generator, dtype=torch.float64) * 2
    p[0, 2] = -math.inf  # what a filter of the target removes
    return q.log_softmax(-1), p.log_softmax(-1)


def kl(first, second):
    return sum(a * (math.log(a) - math.log(b)) for a, b in zip(first, second, strict=True) if a > 0)


def forward_kl(q, p):
    return kl(p, q)


def reverse_kl(q, p):
    return math.inf if min(p) == 0 else kl(q, p)


def jensen_shannon(q, p):
    mean = [(a + b) / 2 for a, b in zip(q, p, strict=True)]
    return (kl(p, mean) + kl(q, mean)) / 2


def total_variation(q, p):
    return sum(abs(a - b) for a, b in zip(q, p, strict=True)) / 2


def acceptance(q, p):
    return sum(min(a, b) for a, b in zip(q, p, strict=True))


def log_acceptance(q, p):
    return -math.log(acceptance(q, p))


def hybrid(q, p):
    share = math.exp(-3 * acceptance(q, p))
    return share * kl(p, q) + (1 - share) * total_variation(q, p)


@pytest.mark.parametrize(
    "naive",
    [forward_kl, reverse_kl, jensen_shannon, total_variation, acceptance, log_acceptance, hybrid],
    ids=lambda one: one.__name__,
)
def test_it_equals_the_loop(naive):
    log_q, log_p = rows()
    found = getattr(divergences, naive.__name__)(log_q, log_p)
    expected = [naive(q, p) for q, p in zip(log_q.exp().tolist(), log_p.exp().tolist(), strict=True)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=CLOSE)
    assert float(getattr(divergences, naive.__name__)(log_q, log_q).sum()) == pytest.approx(
        len(log_q) if naive is acceptance else 0.0, abs=CLOSE
    )


@pytest.mark.parametrize(
    "naive",
    [forward_kl, reverse_kl, jensen_shannon, total_variation, log_acceptance],
    ids=lambda one: one.__name__,
)
def test_its_gradient_equals_differences_of_the_loop(naive):
    """Central differences by every logit, in fp64: their error is about 1e-10."""
    _, log_p = rows(4)
    log_p = log_p[1:]
    logits = torch.randn(4, 7, generator=torch.Generator().manual_seed(5), dtype=torch.float64).mul_(2)
    logits.requires_grad_()
    getattr(divergences, naive.__name__)(logits.log_softmax(-1), log_p).sum().backward()

    def value(row, place, shift):
        moved = [x + shift * (v == place) for v, x in enumerate(logits[row].tolist())]
        total = sum(map(math.exp, moved))
        return naive([math.exp(x) / total for x in moved], log_p[row].exp().tolist())

    step = 1e-5
    for row in range(4):
        for place in range(7):
            expected = (value(row, place, step) - value(row, place, -step)) / (2 * step)
            assert float(logits.grad[row, place]) == pytest.approx(expected, abs=1e-6)


def test_gradient_of_the_reverse_divergence_and_of_its_clip():
    """d RKL / d logits = q (log q/p - RKL); a clipped row has none."""
    _, log_p = rows(1)
    log_p = log_p[1:]
    logits = torch.randn(4, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64).mul_(2)
    logits.requires_grad_()
    log_q = logits.log_softmax(-1)
    value = divergences.reverse_kl(log_q, log_p)
    clip = float(value.detach().sort().values[1:3].mean())
    divergences.reverse_kl(log_q, log_p, clip=clip).sum().backward()
    expected = (log_q.exp() * (log_q - log_p - value[:, None])).detach()
    expected[value > clip] = 0
    torch.testing.assert_close(logits.grad, expected, rtol=0, atol=CLOSE)
    assert 0 < int((value > clip).sum()) < 4


def test_the_shares_of_the_hybrid_have_no_gradient():
    log_q, log_p = rows(2)
    logits = log_q[1:].clone().requires_grad_()
    divergences.hybrid(logits.log_softmax(-1), log_p[1:]).sum().backward()
    again = log_q[1:].clone().requires_grad_()
    q = again.log_softmax(-1)
    share = torch.tensor(
        [
            math.exp(-3 * acceptance(a.exp().tolist(), b.exp().tolist()))
            for a, b in zip(q, log_p[1:], strict=True)
        ]
    ).double()
    mixed = share * divergences.forward_kl(q, log_p[1:]) + (1 - share) * divergences.total_variation(
        q, log_p[1:]
    )
    mixed.sum().backward()
    torch.testing.assert_close(logits.grad, again.grad, rtol=0, atol=1e-6)
