"""LiLiCorr's terms against loops in fp64, and which slots they are taken over."""

import math

import pytest
import torch

from spectrain.objectives.lilicorr import (
    BASE_WEIGHTS,
    MARGIN_WEIGHTS,
    lattice_terms,
    prefixes,
    supervised,
)


def test_supervision_ends_where_the_truth_is_absent():
    present = torch.tensor([[True, True, False, True], [False] * 4, [True] * 4])
    trained = torch.tensor([[True] * 4, [True] * 4, [True, True, True, False]])
    assert supervised(present, trained).tolist() == [[True, True, False, False], [False] * 4, [False] * 4]


def test_the_terms_equal_the_loops():
    generator = torch.Generator().manual_seed(0)
    node, target = torch.randn(2, 4, 3, 5, generator=generator, dtype=torch.float64) * 3
    node.requires_grad_()
    slopes = torch.zeros(3, 4, 3, 5, dtype=torch.float64)
    choice = torch.randint(5, (4, 3), generator=generator)
    mask = torch.tensor([[True, True, False], [True] * 3, [False] * 3, [True, False, False]])
    entropy = hinge = penalty = 0.0
    for m in range(4):
        for k in range(3):
            if not mask[m, k]:
                continue
            s, t, gold = node[m, k].tolist(), target[m, k].tolist(), int(choice[m, k])
            total = sum(math.exp(x) for x in s)
            q = [math.exp(x) / total for x in s]
            entropy -= math.log(q[gold])
            hinge += max(0.0, 2.0 - (s[gold] - max(x for c, x in enumerate(s) if c != gold)))
            gap = [max(0.0, t[gold] - b) for b in t]
            mean = sum(a * b for a, b in zip(q, gap, strict=True))
            penalty += mean
            rival = max((c for c in range(5) if c != gold), key=lambda c: s[c])
            violated = s[gold] - s[rival] < 2.0
            for c in range(5):
                slopes[0, m, k, c] = q[c] - (c == gold)
                slopes[1, m, k, c] = violated * ((c == rival) - (c == gold))
                slopes[2, m, k, c] = q[c] * (gap[c] - mean)
    count = int(mask.sum())
    found = lattice_terms(node, choice, mask, target)
    expected = (entropy / count, hinge / count, penalty / count)
    assert [float(one.detach()) for one in found] == pytest.approx(expected, abs=1e-9)
    for term, slope in zip(found, slopes, strict=True):
        (gradient,) = torch.autograd.grad(term, node, retain_graph=True)
        torch.testing.assert_close(gradient, slope / count, rtol=0, atol=1e-9)
    assert int((slopes[1] != 0).sum()) > 0, "some margins are violated"
    assert float(found.weighted(BASE_WEIGHTS).detach()) == pytest.approx(
        0.25 * expected[0] + 0.25 * expected[2], abs=1e-9
    )
    assert float(found.weighted(MARGIN_WEIGHTS).detach()) == pytest.approx(
        0.125 * expected[0] + 0.125 * expected[1] + 0.25 * expected[2], abs=1e-9
    )


def test_a_constant_per_slot_changes_nothing():
    """Scores may come normalised or raw."""
    generator = torch.Generator().manual_seed(1)
    node, target = torch.randn(2, 2, 3, 4, generator=generator, dtype=torch.float64)
    choice, mask = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.bool)
    raw, normal = (lattice_terms(one, choice, mask, target) for one in (node, node.log_softmax(-1)))
    for one, other in zip(raw, normal, strict=True):
        torch.testing.assert_close(one, other)


def test_prefixes():
    node = torch.zeros(2, 3, 2)
    node[..., 1] = 1.0
    choice = torch.tensor([[1, 1, 0], [0, 1, 1]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    chosen, possible = prefixes(node, choice, mask)
    assert (float(chosen), float(possible)) == (1.0, 2.5)
