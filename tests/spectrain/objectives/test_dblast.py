"""The accepted-length loss against loops, and the identity that lets text of the target stand for drafts."""

import itertools
import math

import pytest
import torch

from spectrain.objectives.dblast import accepted_length_loss, dblast_terms


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.6])
def test_it_equals_the_loop(threshold):
    generator = torch.Generator().manual_seed(0)
    log_q, log_p = -3 * torch.rand(2, 6, 5, generator=generator, dtype=torch.float64)
    log_p[0, 1] = -math.inf  # a filter and a rounding may disagree on what was drawn
    valid = torch.arange(5) < torch.tensor([5, 3, 0, 5, 1, 5])[:, None]
    total = 0.0
    for m in range(6):
        mass = 1.0
        for k in range(5):
            if not valid[m, k] or mass < threshold:
                break
            ratio = math.inf if log_p[m, k] == -math.inf else math.exp(float(log_q[m, k] - log_p[m, k]))
            mass *= min(1.0, ratio)
            total += mass
    found = accepted_length_loss(log_q, log_p, valid, threshold)
    assert float(found) == pytest.approx(-total / 5, abs=1e-9)  # one block has nothing to learn


def test_both_terms_and_their_gradient_equal_the_loop():
    """d A_k / d log q_i = A_k where slot i <= k lies below the target, else 0; what ends a prefix has no gradient."""
    generator = torch.Generator().manual_seed(2)
    log_q, log_p = -2 * torch.rand(2, 3, 4, generator=generator, dtype=torch.float64)
    log_q.requires_grad_()
    valid = torch.arange(4) < torch.tensor([4, 2, 4])[:, None]
    weight = torch.rand(3, 4, generator=generator, dtype=torch.float64) * valid
    terms = dblast_terms(log_q, log_p, valid, weight)
    length = nll = 0.0
    gradient, q = torch.zeros_like(log_q), log_q.detach()
    for m in range(3):
        mass = 1.0
        for k in range(4):
            if valid[m, k]:
                nll -= float(weight[m, k] * q[m, k]) / float(weight.sum())
                gradient[m, k] -= 0.5 * weight[m, k] / weight.sum()
            if not valid[m, k] or mass < 0.1:
                continue
            mass *= min(1.0, math.exp(float(q[m, k] - log_p[m, k])))
            length += mass / 3
            for i in range(k + 1):
                gradient[m, i] -= mass / 3 * float(q[m, i] < log_p[m, i])
    assert float(terms.length.detach()) == pytest.approx(-length, abs=1e-9)
    assert float(terms.nll.detach()) == pytest.approx(nll, abs=1e-9)
    terms.mixed().backward()
    torch.testing.assert_close(log_q.grad, gradient, rtol=0, atol=1e-9)


def test_text_of_the_target_stands_for_drafts():
    """E_{x from q} sum_k prod min(1, p/q) = E_{y from p} sum_k prod min(1, q/p), by enumeration over a tiny vocabulary."""
    generator = torch.Generator().manual_seed(1)
    vocab, slots = 3, 3
    # a table of conditionals per prefix, for both laws
    law = {
        prefix: torch.randn(2, vocab, generator=generator, dtype=torch.float64).softmax(-1)
        for length in range(slots)
        for prefix in itertools.product(range(vocab), repeat=length)
    }
    paths = list(itertools.product(range(vocab), repeat=slots))
    log_q, log_p = (
        torch.tensor([[math.log(law[path[:k]][one][path[k]]) for k in range(slots)] for path in paths])
        for one in (0, 1)
    )
    drafted = 0.0
    for index, path in enumerate(paths):
        del path
        mass, length = 1.0, 0.0
        for k in range(slots):
            mass *= min(1.0, math.exp(float(log_p[index, k] - log_q[index, k])))
            length += mass
        drafted += math.exp(float(log_q[index].sum())) * length
    written = 0.0
    for index in range(len(paths)):
        one = accepted_length_loss(
            log_q[index : index + 1], log_p[index : index + 1], torch.ones(1, slots, dtype=torch.bool), 0.0
        )
        written -= math.exp(float(log_p[index].sum())) * float(one)
    assert written == pytest.approx(drafted, abs=1e-6)


def test_nothing_is_learnt_behind_a_lost_prefix():
    log_q = torch.log(torch.tensor([[0.5, 0.1, 0.9, 0.9]], dtype=torch.float64)).requires_grad_()
    accepted_length_loss(log_q, torch.zeros_like(log_q), torch.ones(1, 4, dtype=torch.bool)).backward()
    assert (log_q.grad != 0).tolist() == [[True, True, False, False]]
