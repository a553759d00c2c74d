"""LibraSpec's rule against its definition as a double sum, and the lengths of its paper's setting."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speccorrect.policies.libraspec import LONGEST, further, wanted

shares = st.lists(st.floats(0, 1), min_size=1, max_size=20)


def double_sum(q, start):
    return sum(math.prod(q[start : end + 1]) for end in range(start, len(q)))


@given(shares)
def test_the_suffix_recursion_is_the_double_sum(q):
    found = further(torch.tensor([q], dtype=torch.float64))[0]
    expected = [double_sum(q, start) for start in range(len(q))]
    assert found.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-300)


@given(shares, st.floats(0, 4))
def test_the_length_is_the_smallest_bound(q, alpha):
    values = [alpha * double_sum(q, start) + start + 1 for start in range(len(q))]
    if any(abs(value - round(value)) < 1e-9 for value in values):
        return  # a whole number: rounding may fall on either side in either form
    smallest = min(math.floor(value) for value in values)
    assert int(wanted(torch.tensor([q], dtype=torch.float64), alpha)) == min(max(1, smallest), LONGEST)


@given(shares, st.integers(0, 19), st.floats(0, 1), st.floats(0, 4), st.floats(0, 2))
def test_more_confidence_or_a_larger_alpha_never_shortens(q, place, raised, alpha, more):
    better = list(q)
    better[place % len(q)] = max(better[place % len(q)], raised)
    rows = torch.tensor([q, better], dtype=torch.float64)
    less, greater = wanted(rows, alpha).tolist()
    assert less <= greater <= wanted(rows, alpha + more)[1]


@pytest.mark.parametrize(("q", "length"), [(0.9, 17), (0.7, 6), (0.5, 3), (0.0, 1)])
def test_sixteen_slots_of_one_confidence(q, length):
    assert int(wanted(torch.full((1, 16), q), 2.2)) == length


def test_certain_slots_never_retreat():
    assert int(wanted(torch.ones(1, 15), 1.0)) >= 15
