"""What holds for every policy: bounds, batches, dead nodes, and that a sequential one does not look ahead."""

import pytest
import torch

from speccorrect.policy import Costs, Outlook, length_policy, policy_specs, share

NODES, BATCH = 9, 4


def outlook(seed, batch=BATCH):
    generator = torch.Generator().manual_seed(seed)
    chain_BK = torch.rand(batch, NODES, generator=generator) ** 0.4
    return Outlook(
        reach_BM=chain_BK.cumprod(dim=-1),
        depth_BM=torch.arange(1, NODES + 1).expand(batch, -1),
        chain_BK=chain_BK,
        length_B=torch.rand(batch, generator=generator),
    )


def costs(seed, batch=BATCH):
    generator = torch.Generator().manual_seed(seed)
    rows = batch * (NODES + 1)
    return Costs(seconds_T=2 + (torch.rand(rows, generator=generator) * 0.4).cumsum(dim=0))


@pytest.mark.parametrize("name", policy_specs())
def test_rows_are_whole_numbers_from_the_anchor_to_everything(name):
    policy = length_policy(name)
    for seed in range(20):
        rows_B = policy.rows(outlook(seed), costs(seed))
        assert rows_B.dtype == torch.int64
        assert rows_B.shape == (BATCH,)
        assert (rows_B >= 1).all()
        assert (rows_B <= NODES + 1).all()


@pytest.mark.parametrize("name", policy_specs())
def test_the_rows_of_a_policy_change_with_what_it_reads(name):
    found = {tuple(length_policy(name).rows(outlook(seed), costs(seed)).tolist()) for seed in range(20)}
    assert len(found) > 1 or name == "fixed"


@pytest.mark.parametrize("name", [name for name in policy_specs() if length_policy(name).sequential])
def test_a_sequential_policy_decides_a_slot_without_those_behind_it(name):
    policy = length_policy(name)
    for seed in range(200):
        seen, price = outlook(seed, 1), costs(seed, 1)
        rows = int(policy.rows(seen, price))
        for slot in range(NODES):
            chain_BK = seen.chain_BK.clone()
            chain_BK[:, slot + 1 :] = torch.rand(
                NODES - slot - 1, generator=torch.Generator().manual_seed(seed + slot)
            )
            other = Outlook(
                reach_BM=chain_BK.cumprod(dim=-1),
                depth_BM=seen.depth_BM,
                chain_BK=chain_BK,
                length_B=seen.length_B,
            )
            # slots behind `slot` changed: whether it and those before it are verified may not
            assert (int(policy.rows(other, price)) >= slot + 2) == (rows >= slot + 2)


@pytest.mark.parametrize("name", ["libraspec", "measured"])
def test_the_others_do_look_ahead(name):
    assert not length_policy(name).sequential
    price = Costs(seconds_T=torch.tensor([1.0, 2.0, 2.2, 2.4]))
    rows = []
    for behind in (0.0, 1.0):
        chain_BK = torch.tensor([[0.8, behind, behind]])
        seen = Outlook(
            reach_BM=chain_BK.cumprod(dim=-1), depth_BM=torch.arange(1, 4)[None], chain_BK=chain_BK
        )
        rows.append(int(length_policy(name).rows(seen, price)))
    assert rows[0] < 2 <= rows[1] or rows[0] < rows[1]


def test_shares_go_to_the_most_probable_nodes_and_ties_to_the_earlier_request():
    reach_BM = torch.tensor([[0.9, 0.5, 0.1], [0.8, 0.5, 0.5]])
    seen = Outlook(reach_BM=reach_BM, depth_BM=torch.ones(2, 3, dtype=torch.int64), chain_BK=reach_BM)
    expected = {0: [1, 1], 1: [2, 1], 2: [2, 2], 3: [3, 2], 4: [3, 3], 5: [3, 4], 6: [4, 4]}
    assert {count: share(seen, torch.tensor(count)).tolist() for count in expected} == expected
    # enough equal ones for a sort to lose their order
    level = torch.full((3, 400), 0.5)
    many = Outlook(reach_BM=level, depth_BM=torch.ones(3, 400, dtype=torch.int64), chain_BK=level)
    assert share(many, torch.tensor(500)).tolist() == [401, 101, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("magic", "policy: got 'magic', expected one of adaflash, caddtree, dspark, fixed"),
        ("fixed=0", "policy: got fixed=0, expected a whole number of rows from 1"),
        ("fixed=2.5", "policy: got fixed=2.5"),
        ("fixed=many", "policy: got 'fixed=many', expected fixed=NUMBER"),
        ("threshold=1.5", "policy: got threshold=1.5, expected a probability"),
        ("threshold=nan", "policy: got threshold=nan"),
        ("libraspec=-1", "policy: got libraspec=-1, expected alpha"),
        ("adaflash=0", "policy: got adaflash=0, expected a margin"),
        ("measured=3", "policy: got 'measured=3', but measured takes no number"),
    ],
)
def test_policies_that_do_not_exist_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        length_policy(text)
