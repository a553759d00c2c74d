"""DSpark's scheduler: the worked example of its appendix, and a walk written as a loop."""

import random

import pytest
import torch

from speccorrect.policies.dspark import DSpark
from speccorrect.policies.measured import Measured
from speccorrect.policy import Costs, Outlook


def outlook(reach):
    reach_BM = torch.tensor(reach)
    depth_BM = torch.arange(1, reach_BM.shape[1] + 1).expand(reach_BM.shape)
    return Outlook(reach_BM=reach_BM, depth_BM=depth_BM, chain_BK=reach_BM)


@pytest.mark.parametrize("second", [0.9, 0.0])
def test_the_appendix_example_verifies_no_draft_whatever_follows(second):
    # steps per second 1.0, 0.5, 0.45 at one, two and three rows; confidences 0.8 and `second`
    costs = Costs(seconds_T=1 / torch.tensor([1.0, 0.5, 0.45]))
    seen = outlook([[0.8, 0.8 * second]])
    assert DSpark().rows(seen, costs).tolist() == [1]
    # the comparison of all lengths answers differently in the two cases, which is what leaks
    assert Measured().rows(seen, costs).tolist() == [3 if second else 1]


def walk(reach, seconds):
    """Token after token in a loop, as the paper's text has it."""
    batch = len(reach)
    order = sorted(
        ((-value, row, slot) for row, one in enumerate(reach) for slot, value in enumerate(one)),
    )
    rows, total, expected = [1] * batch, batch, float(batch)
    best = expected / seconds[total - 1]
    for negative, row, _ in order:
        total, expected = total + 1, expected - negative
        rate = expected / seconds[total - 1]
        if rate <= best:
            break
        best, rows[row] = rate, rows[row] + 1
    return rows


def test_batches_by_the_loop():
    rng = random.Random(4)
    for _ in range(500):
        batch, nodes = rng.randint(1, 4), rng.randint(1, 6)
        reach = []
        for _ in range(batch):
            at, one = 1.0, []
            for _ in range(nodes):
                at *= rng.random() ** 0.3
                one.append(at)
            reach.append(one)
        level = rng.uniform(0.5, 20)
        seconds = [level + rng.uniform(0.2, 1.0) * t for t in range(batch * (nodes + 1))]
        found = DSpark().rows(outlook(reach), Costs(seconds_T=torch.tensor(seconds, dtype=torch.float64)))
        assert found.tolist() == walk([[float(torch.tensor(v)) for v in one] for one in reach], seconds)
