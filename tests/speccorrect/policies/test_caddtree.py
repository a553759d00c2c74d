"""Convex costs, and the budget at their one summit."""

import random
from statistics import fmean as mean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speccorrect.policies.caddtree import CaDDTree, convex
from speccorrect.policies.measured import Measured
from speccorrect.policy import Costs, Outlook


def isotonic(steps):
    """Isotonic regression by pooling neighbours that fall, until none do."""
    blocks = []
    for value in steps:
        blocks.append([value])
        while len(blocks) > 1 and mean(blocks[-2]) > mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] = blocks[-1] + last
    return [mean(block) for block in blocks for _ in block]


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=12))
def test_increments_never_fall_and_are_never_negative(seconds):
    steps = convex(torch.tensor(seconds, dtype=torch.float64)).diff()
    assert (steps >= -1e-9).all()
    assert (steps.diff() >= -1e-9).all()


@given(st.lists(st.floats(0, 3), min_size=1, max_size=9))
def test_increments_are_their_isotonic_regression(steps):
    seconds = torch.tensor([1.0, *steps], dtype=torch.float64).cumsum(dim=0)
    assert convex(seconds).diff().tolist() == pytest.approx(isotonic(steps), abs=1e-9)


def test_convex_costs_are_left_alone():
    seconds = torch.tensor([5.0, 5.0, 5.5, 6.5, 8.0])
    torch.testing.assert_close(convex(seconds), seconds)
    torch.testing.assert_close(convex(seconds[:1]), seconds[:1])


def outlook(reach):
    reach_BM = torch.tensor([reach])
    depth_BM = torch.arange(1, len(reach) + 1)[None]
    return Outlook(reach_BM=reach_BM, depth_BM=depth_BM, chain_BK=reach_BM)


def test_constant_costs_take_the_whole_tree_and_steep_ones_nothing():
    reach = [0.8, 0.7, 0.3, 0.2, 0.01]
    assert CaDDTree().rows(outlook(reach), Costs(seconds_T=torch.full((6,), 3.0))).tolist() == [6]
    steep = Costs(seconds_T=torch.arange(1.0, 7.0) ** 2)
    assert CaDDTree().rows(outlook(reach), steep).tolist() == [1]


def test_on_convex_costs_the_first_fall_is_behind_the_summit():
    rng = random.Random(6)
    for _ in range(300):
        reach = sorted((rng.random() for _ in range(rng.randint(1, 12))), reverse=True)
        seconds, step = [rng.uniform(1, 10)], rng.uniform(0, 0.1)
        for _ in reach:
            seconds.append(seconds[-1] + step)
            step += rng.uniform(0, 0.3)
        costs = Costs(seconds_T=torch.tensor(seconds, dtype=torch.float64))
        assert (
            CaDDTree().rows(outlook(reach), costs).tolist() == Measured().rows(outlook(reach), costs).tolist()
        )
