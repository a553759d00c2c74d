"""The measured rule against brute force: all widths, and all ways to divide rows among requests."""

import itertools
import random

import torch

from speccorrect.policies.measured import Measured
from speccorrect.policy import Costs, Outlook


def outlook(reach):
    reach_BM = torch.tensor(reach)
    depth_BM = torch.arange(1, reach_BM.shape[1] + 1).expand(reach_BM.shape)
    return Outlook(reach_BM=reach_BM, depth_BM=depth_BM, chain_BK=reach_BM)


def falling(rng, nodes):
    """Probabilities that never rise, some of them equal, some 0."""
    values, at = [], 1.0
    for _ in range(nodes):
        at *= rng.choice((1.0, rng.random(), rng.random() ** 0.2, 0.0 if rng.random() < 0.1 else 0.9))
        values.append(at)
    return values


def stepped(rng, count):
    """Costs with a level, a slope, steps of a tile and some noise; they may fall."""
    level, slope, tile = rng.uniform(0.1, 20), rng.choice((0.0, rng.random())), rng.choice((1, 4, 8, 16))
    jump = rng.choice((0.0, rng.uniform(0, 5)))
    return [level + slope * t + jump * (t // tile) + rng.uniform(0, 0.2) for t in range(count)]


def test_ten_thousand_tables_by_brute_force():
    rng, policy = random.Random(1), Measured()
    for _ in range(10_000):
        nodes = rng.randint(1, 24)
        reach, seconds = falling(rng, nodes), stepped(rng, nodes + 1)
        chosen = int(policy.rows(outlook([reach]), Costs(seconds_T=torch.tensor(seconds)))[0])
        rates = [(1 + sum(reach[: rows - 1])) / seconds[rows - 1] for rows in range(1, nodes + 2)]
        assert rates[chosen - 1] >= max(rates) * (1 - 1e-6)


def test_a_batch_of_even_rows_takes_the_best_common_width():
    rng, policy = random.Random(2), Measured()
    for _ in range(500):
        batch, nodes = rng.randint(1, 4), rng.randint(1, 8)
        reach = [falling(rng, nodes) for _ in range(batch)]
        seconds = stepped(rng, batch * (nodes + 1))
        rows = policy.rows(outlook(reach), Costs(seconds_T=torch.tensor(seconds))).tolist()
        rates = [
            sum(1 + sum(one[: width - 1]) for one in reach) / seconds[batch * width - 1]
            for width in range(1, nodes + 2)
        ]
        assert len(set(rows)) == 1
        assert rates[rows[0] - 1] >= max(rates) * (1 - 1e-6)


def test_a_joint_budget_is_divided_as_exhaustive_search_divides_it():
    rng, policy = random.Random(3), Measured()
    for _ in range(400):
        batch, nodes = rng.randint(1, 3), rng.randint(1, 4)
        reach = [falling(rng, nodes) for _ in range(batch)]
        seconds = stepped(rng, batch * (nodes + 1))
        costs = Costs(seconds_T=torch.tensor(seconds), even=False)
        rows = policy.rows(outlook(reach), costs).tolist()

        def rate(counts, reach=reach, seconds=seconds):
            expected = sum(1 + sum(one[: count - 1]) for one, count in zip(reach, counts, strict=True))
            return expected / seconds[sum(counts) - 1]

        best = max(map(rate, itertools.product(range(1, nodes + 2), repeat=batch)))
        assert rate(rows) >= best * (1 - 1e-6)


def test_free_rows_are_all_taken_and_dear_ones_are_not():
    reach = [[0.9, 0.5, 0.2, 0.1]]
    assert Measured().rows(outlook(reach), Costs(seconds_T=torch.ones(5))).tolist() == [5]
    dear = Costs(seconds_T=torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert Measured().rows(outlook(reach), dear).tolist() == [1]


def test_a_step_in_the_costs_is_crossed_where_it_pays():
    # a fifth row costs as much as all of the second tile: the rule looks beyond the step
    seconds = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.4, 1.4, 1.4, 1.4])
    assert Measured().rows(outlook([[0.95] * 7]), Costs(seconds_T=seconds)).tolist() == [8]
