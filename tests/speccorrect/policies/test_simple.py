"""Fixed, threshold and AdaFlash: hand examples, for chains and for trees."""

import pytest
import torch

from speccorrect.policies.adaflash import AdaFlash
from speccorrect.policies.fixed import Fixed
from speccorrect.policies.threshold import Threshold
from speccorrect.policy import Costs, Outlook

COSTS = Costs(seconds_T=torch.ones(64))


def chain(*q, length=None):
    chain_BK = torch.tensor([q])
    return Outlook(
        reach_BM=chain_BK.cumprod(dim=-1),
        depth_BM=torch.arange(1, len(q) + 1)[None],
        chain_BK=chain_BK,
        length_B=None if length is None else torch.tensor([length]),
    )


TREE = Outlook(
    reach_BM=torch.tensor([[0.6, 0.5, 0.3, 0.2, 0.1, 0.0]]),
    depth_BM=torch.tensor([[1, 2, 1, 3, 2, 0]]),
    chain_BK=torch.tensor([[0.6, 0.8, 0.4]]),
)


@pytest.mark.parametrize(("count", "rows"), [(None, 5), (1, 1), (3, 3), (5, 5), (99, 5)])
def test_fixed(count, rows):
    assert Fixed(count).rows(chain(0.5, 0.5, 0.5, 0.5), COSTS).tolist() == [rows]


@pytest.mark.parametrize(("least", "rows"), [(0.0, 5), (0.55, 3), (0.65, 2), (0.95, 1), (0.9, 2)])
def test_a_threshold_stops_before_the_first_uncertain_token(least, rows):
    # the last slot is certain again, which does not help
    assert Threshold(least).rows(chain(0.9, 0.6, 0.5, 0.99), COSTS).tolist() == [rows]


@pytest.mark.parametrize(("least", "rows"), [(0.7, 1), (0.5, 5), (0.3, 6)])
def test_a_threshold_on_a_tree_counts_the_nodes_up_to_its_depth(least, rows):
    # depth 1 holds two nodes, depth 2 two more, depth 3 one; the sixth node is dead
    assert Threshold(least).rows(TREE, COSTS).tolist() == [rows]


@pytest.mark.parametrize(
    ("share", "rows"),
    [(1 / 16, 1), (4 / 16, 5), (0.5, 10), (1.0, 16), (0.0, 1), (2 / 16, 3)],
)
def test_adaflash_verifies_the_foretold_share_and_a_third_more(share, rows):
    # round(share * 16 * 1.3) rows of a block of 16, at least the anchor
    assert AdaFlash().rows(chain(*[0.5] * 15, length=share), COSTS).tolist() == [rows]
