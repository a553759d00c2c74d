"""The trimming stage: which nodes it ranks first, what it cuts, and what it learns, against slow versions."""

import math

import pytest
import torch

from speccorrect.grow import TreeShape, grow_chain, grow_tree
from speccorrect.length_head import LengthHead
from speccorrect.policy import length_policy
from speccorrect.products import Verdict
from speccorrect.tally import SUREST
from speccorrect.tree import chain_tree
from specrun.products import Grown
from specrun.stages.trim import learn, look, trim
from specrun.state import allocate

from doubles.correctors import TableCorrector
from doubles.engines import small_target
from reference import heap

SLOTS, BATCH = 5, 3
ANCHOR = torch.tensor([8, 9, 10])
HIDDEN = torch.randn(BATCH, SLOTS + 1, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def state():
    return allocate(small_target(), None, batch=BATCH, capacity=64, path=SLOTS + 1, penalties=False)


def tree(seed, nodes=14, **shape):
    corrector = TableCorrector.random(seed, batch=BATCH, slots=SLOTS, count=7)
    lanes = TreeShape(nodes=nodes, lanes=nodes, ledger=nodes, **shape)
    return Grown(grow_tree(corrector, corrector.prepared(), ANCHOR, SLOTS, lanes), None)


def chain(seed):
    corrector = TableCorrector.random(seed, batch=BATCH, slots=SLOTS, count=7)
    proposal = grow_chain(corrector, corrector.prepared(), SLOTS)
    return Grown(chain_tree(ANCHOR, proposal), proposal)


def seen(state, grown, policy="fixed", head=None):
    return look(state, grown, length_policy(policy), accept="match", head=head, hidden_BRD=HIDDEN)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", [{}, {"depth_bonus": -0.4}, {"contain_chain": False}])
def test_a_trimmed_tree_is_the_most_probable_nodes_with_their_ancestors(state, seed, shape):
    grown = tree(seed, **shape)
    for rows in range(1, 16):
        smaller = trim(grown, seen(state, grown), rows)[0].tree
        for row in range(BATCH):
            reach = grown.tree.score_BN[row].exp()
            assert smaller.tokens_BN.shape[1] == rows
            expected = sorted(reach.tolist(), reverse=True)[:rows]
            # a node is less probable than its parent by SUREST at least, which may reorder near ties
            assert sum(smaller.score_BN[row].exp().tolist()) == pytest.approx(sum(expected), rel=0.02)
            assert smaller.sees_BNN[row].tolist() == heap.ancestors(smaller.parent_BN[row].tolist())


def test_reach_is_the_product_along_the_path_and_never_rises(state):
    grown = tree(2)
    sight = seen(state, grown)
    for row in range(BATCH):
        reach = sight.outlook.reach_BM[row].tolist()
        assert reach == sorted(reach, reverse=True)
        for place, node in enumerate(sight.order_BM[row].tolist()):
            expected = math.exp(float(grown.tree.score_BN[row, node]))
            assert reach[place] == pytest.approx(expected, rel=1 - SUREST**SLOTS)
            assert sight.outlook.depth_BM[row, place] == grown.tree.depth_BN[row, node]


def test_dead_nodes_come_last_and_are_never_reached(state):
    corrector = TableCorrector.random(3, batch=BATCH, slots=2, count=2)
    corrector.table[..., 1] = -math.inf  # one child is left to every node
    shape = TreeShape(nodes=14, lanes=14, ledger=14)
    grown = Grown(grow_tree(corrector, corrector.prepared(), ANCHOR, 2, shape), None)
    sight = seen(state, grown)
    alive = int(grown.tree.valid_BN[0].sum()) - 1
    assert alive < sight.outlook.nodes
    assert (sight.outlook.reach_BM[:, alive:] == 0).all()
    assert (sight.outlook.depth_BM[:, alive:] == 0).all()
    assert (sight.outlook.reach_BM[:, :alive] > 0).all()


def test_the_chain_of_a_tree_is_its_best_node_at_every_depth(state):
    grown = tree(4)
    best = [1.0]
    for depth in range(1, SLOTS + 1):
        scores = grown.tree.score_BN[0][grown.tree.depth_BN[0] == depth]
        best.append(float(scores.max().exp()) if len(scores) else 0.0)
    found = seen(state, grown).outlook.chain_BK[0].tolist()
    for depth, share in enumerate(found):
        if best[depth]:
            assert share == pytest.approx(best[depth + 1] / best[depth], rel=0.02)


def test_a_chain_is_cut_with_its_scores(state):
    grown = chain(1)
    (short, proposal), sight = trim(grown, seen(state, grown), 3)
    assert short.tokens_BN.tolist() == grown.tree.tokens_BN[:, :3].tolist()
    assert proposal.tokens_BK.shape == (BATCH, 2)
    assert torch.equal(proposal.scores_BKC, grown.proposal.scores_BKC[:, :2])
    assert sight.step_BM.shape == (BATCH, 2)
    assert trim(grown, sight, 99)[0] is grown


@pytest.mark.parametrize("grow", [tree, chain])
def test_what_is_learnt_is_every_child_of_the_accepted_path(state, grow):
    grown = grow(5)
    rows = 9 if grown.proposal is None else 4
    cut, sight = trim(grown, seen(state, grown), rows)
    nodes = cut.tree.tokens_BN.shape[1]
    # the walk ends at the deepest node, the middle one, and the root
    ends = [int(cut.tree.depth_BN[0].argmax()), nodes // 2, 0]
    path_BP = torch.zeros(BATCH, nodes, dtype=torch.int64)
    walked = []
    for row, end in enumerate(ends):
        path = [end]
        while path[-1]:
            path.append(int(cut.tree.parent_BN[row, path[-1]]))
        walked.append(set(path))
        path_BP[row] = torch.tensor([*reversed(path), *[end] * (nodes - len(path))])
    count_B = torch.tensor([len(one) for one in walked])
    learn(state, cut.tree, sight, Verdict(path_BP, count_B, torch.zeros(BATCH, dtype=torch.int64)))
    for row in range(BATCH):
        tried = [node for node in range(1, nodes) if int(cut.tree.parent_BN[row, node]) in walked[row]]
        steps = [
            float(
                (cut.tree.score_BN[row, node] - cut.tree.score_BN[row, cut.tree.parent_BN[row, node]]).exp()
            )
            for node in tried
        ]
        assert float(state.predicted_BKX[row].sum()) == pytest.approx(sum(steps), rel=1e-5)
        by_depth = [0] * SLOTS
        for node in walked[row] - {0}:
            by_depth[int(cut.tree.depth_BN[row, node]) - 1] += 1
        assert state.accepted_BKX[row].sum(dim=-1).tolist() == by_depth


def test_experience_changes_what_measured_sees_and_a_new_request_has_none(state):
    grown = chain(6)
    before = seen(state, grown, "measured").outlook.reach_BM.clone()
    nothing = Verdict(
        torch.zeros(BATCH, SLOTS + 1, dtype=torch.int64),
        torch.ones(BATCH, dtype=torch.int64),
        torch.zeros(BATCH, dtype=torch.int64),
    )
    for _ in range(9):
        learn(state, grown.tree, seen(state, grown, "measured"), nothing)
    after = seen(state, grown, "measured").outlook.reach_BM
    assert (after < before).all()
    state.tally.clear(0)
    again = seen(state, grown, "measured").outlook.reach_BM
    assert torch.equal(again[0], before[0])
    assert torch.equal(again[1], after[1])


def test_the_length_head_is_smoothed_over_rounds(state):
    torch.manual_seed(0)
    head, grown = LengthHead(4, width=3), chain(7)
    share = torch.sigmoid(head(HIDDEN))
    torch.testing.assert_close(seen(state, grown, "adaflash", head).outlook.length_B, share)
    state.length_share_B.fill_(1.0)
    found = seen(state, grown, "adaflash", head).outlook.length_B
    torch.testing.assert_close(found, 0.7 + 0.3 * share)
    assert torch.equal(state.length_share_B, found)
