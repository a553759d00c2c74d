"""Growth: against a heap and a beam written node by node, and what every tree has to be."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speccorrect.candidates import select_candidates
from speccorrect.correctors.none import NoCorrector
from speccorrect.grow import TreeShape, grow_chain, grow_tree, top_indices
from speccorrect.products import Candidates
from speccorrect.tree import first_nodes

from doubles.blocks import drafted, randomise
from doubles.correctors import TableCorrector
from reference.heap import beam, best_first

# a path's score is a sum of up to six fp32 terms of order 10, here against doubles
CLOSE = 1e-5


def shape(nodes: int, **changes) -> TreeShape:
    width = max(nodes, 1)
    return TreeShape(**({"nodes": nodes, "lanes": width, "ledger": width} | changes))


def grown(corrector, prepared, tree_shape, noise=None):
    batch = prepared.candidates.base_BKC.shape[0]
    slots = prepared.candidates.base_BKC.shape[1]
    return grow_tree(corrector, prepared, torch.full((batch,), 77), slots, tree_shape, noise)


def paths(tree, row: int) -> list[tuple[tuple[int, ...], float]]:
    """Token paths of the live nodes in their order, with scores."""
    found = []
    for node in range(1, tree.tokens_BN.shape[1]):
        if tree.valid_BN[row, node]:
            path, place = [], node
            while place:
                path.insert(0, int(tree.tokens_BN[row, place]))
                place = int(tree.parent_BN[row, place])
            found.append((tuple(path), float(tree.score_BN[row, node])))
    return found


def check_same(ours, theirs) -> None:
    assert [path for path, _ in ours] == [path for path, _ in theirs]
    assert all(math.isclose(a, b, abs_tol=CLOSE) for (_, a), (_, b) in zip(ours, theirs, strict=True))


def check_whole(tree) -> None:
    """Parents first, depths and sight right, siblings distinct, scores falling along every path, dead nodes inert."""
    batch, nodes = tree.tokens_BN.shape
    for row in range(batch):
        assert tree.valid_BN[row, 0]
        assert tree.parent_BN[row, 0] == 0
        siblings = set()
        for node in range(1, nodes):
            parent = int(tree.parent_BN[row, node])
            if not tree.valid_BN[row, node]:
                assert parent == 0
                assert tree.depth_BN[row, node] == 0
                assert tree.score_BN[row, node] == -math.inf
                continue
            assert parent < node
            assert tree.valid_BN[row, parent]
            assert tree.depth_BN[row, node] == tree.depth_BN[row, parent] + 1
            assert tree.score_BN[row, node] <= tree.score_BN[row, parent]
            pair = (parent, int(tree.tokens_BN[row, node]))
            assert pair not in siblings
            siblings.add(pair)


@pytest.mark.parametrize("chain", [False, True])
@pytest.mark.parametrize("bonus", [0.0, -0.2])
def test_with_as_many_lanes_as_nodes_growth_is_a_heap(chain, bonus):
    """500 random conditional models for each of the two; the bonus takes turns."""
    for case in range(25):
        slots, count, nodes = 2 + case % 5, 2 + case % 7, 1 + case * 7 % 24
        corrector = TableCorrector.random(case, batch=10, slots=slots, count=count)
        tree_shape = shape(nodes, contain_chain=chain, depth_bonus=bonus)
        tree = grown(corrector, corrector.prepared(), tree_shape)
        for row in range(10):
            expected = best_first(corrector.children(row), slots, nodes, depth_bonus=bonus, chain=chain)
            check_same(paths(tree, row), expected)
        if case % 5 == 0:
            check_whole(tree)


@pytest.mark.parametrize("chain", [False, True])
def test_marginal_scores_are_a_heap_too(chain):
    for case in range(25):
        given_ = drafted(case, batch=2, slots=4, vocab=11)
        corrector = NoCorrector()
        prepared = corrector.prepare(given_.block, given_.borrowed, given_.candidates())
        tree = grown(corrector, prepared, shape(12, contain_chain=chain))
        for row in range(2):
            rows = prepared.scores_BKC[row].double().tolist()
            expected = best_first(lambda path, rows=rows: rows[len(path)], 4, 12, chain=chain)
            check_same(paths(tree, row), expected)


@pytest.mark.parametrize("bonus", [0.0, -0.2])
def test_darts_beam(bonus):
    """DARTree's sizes: 12 lanes, 64 nodes of a ledger of 64 per depth."""
    corrector = TableCorrector.random(3, batch=3, slots=7, count=16)
    tree_shape = shape(64, lanes=12, ledger=64, depth_bonus=bonus, contain_chain=False)
    tree = grown(corrector, corrector.prepared(), tree_shape)
    check_whole(tree)
    for row in range(3):
        expected = beam(corrector.children(row), 7, 64, 12, 64, depth_bonus=bonus)
        check_same(paths(tree, row), expected)


@pytest.mark.parametrize("lanes", [1, 3, 12])
def test_every_prefix_of_the_greedy_chain_is_in_the_tree(lanes):
    corrector = TableCorrector.random(
        4, batch=8, slots=6, count=5, peak=0.3
    )  # flat: unforced trees are bushy
    prepared = corrector.prepared()
    chain = grow_chain(corrector, prepared, 6).tokens_BK
    for nodes in (1, 3, 6, 9):
        tree = grown(corrector, prepared, shape(nodes, lanes=lanes, ledger=12))
        check_whole(tree)
        for row in range(8):
            inside = {path for path, _ in paths(tree, row)}
            greedy = chain[row].tolist()
            assert all(tuple(greedy[:length]) in inside for length in range(1, min(nodes, 6) + 1))
    free = grown(corrector, prepared, shape(6, lanes=lanes, ledger=12, contain_chain=False))
    assert any(tuple(chain[row].tolist()) not in {path for path, _ in paths(free, row)} for row in range(8))


def test_of_equal_scores_the_first_candidate_is_the_better():
    """As argmax has it in chains: an untrained head ties all candidates, and their order is then all there is."""
    corrector = TableCorrector.random(13, batch=1, slots=3, count=40)
    corrector.table = torch.zeros_like(corrector.table).log_softmax(dim=-1)
    tree = grown(corrector, corrector.prepared(), shape(45, lanes=4, branches=20, contain_chain=False))
    first = [(0,), *((choice,) for choice in range(1, 20))]
    assert [path for path, _ in paths(tree, 0)][:20] == first
    assert {path[0] for path, _ in paths(tree, 0)[20:]} == {0, 1}


def test_one_lane_and_as_many_nodes_as_slots_is_the_chain():
    corrector = TableCorrector.random(5, batch=4, slots=5, count=6)
    prepared = corrector.prepared()
    tree = grown(corrector, prepared, shape(5, lanes=1, ledger=1))
    proposal = grow_chain(corrector, prepared, 5)
    assert torch.equal(tree.tokens_BN[:, 1:], proposal.tokens_BK)
    assert torch.equal(tree.parent_BN, torch.arange(-1, 5).clamp(min=0).expand(4, -1))


@pytest.mark.parametrize("nodes", [0, 1, 256])
def test_budgets_at_the_edges(nodes):
    corrector = TableCorrector.random(6, batch=2, slots=3, count=3)
    tree = grown(corrector, corrector.prepared(), shape(nodes, contain_chain=False))
    check_whole(tree)
    everything = 3 + 9 + 27
    alive = tree.valid_BN.sum(dim=-1) - 1
    assert (alive == min(nodes, everything)).all()
    assert (tree.tokens_BN[:, 0] == 77).all()
    for row in range(2):
        check_same(paths(tree, row), best_first(corrector.children(row), 3, nodes))


def test_where_candidates_run_out_nodes_are_dead():
    corrector = TableCorrector.random(7, batch=2, slots=3, count=4)
    corrector.table[..., 2:] = -math.inf
    corrector.table[1, :, 1:] = -math.inf
    tree = grown(corrector, corrector.prepared(), shape(32))
    check_whole(tree)
    assert (tree.valid_BN.sum(dim=-1) - 1).tolist() == [2 + 4 + 8, 3]
    assert not tree.score_BN.isnan().any()


def test_a_limit_on_branches():
    corrector = TableCorrector.random(8, batch=4, slots=4, count=6, peak=0.5)
    full = corrector.table.clone()
    tree = grown(corrector, corrector.prepared(), shape(20, branches=2))
    check_whole(tree)
    kept = full.topk(2, dim=-1).indices
    corrector.table = torch.full_like(full, -math.inf).scatter(-1, kept, full.gather(-1, kept))
    for row in range(4):
        check_same(paths(tree, row), best_first(corrector.children(row), 4, 20, chain=True))


def test_all_candidates_listed_grow_the_tree_of_the_whole_vocabulary():
    given_ = drafted(vocab=9, slots=4)
    corrector = randomise(NoCorrector())
    whole = given_.candidates()
    base, ids = whole.base_BKC.sort(dim=-1, descending=True)
    listed = Candidates(ids_BKC=ids, base_BKC=base, lse_BK=whole.lse_BK)
    trees = [
        grown(corrector, corrector.prepare(given_.block, given_.borrowed, candidates), shape(15))
        for candidates in (whole, listed, select_candidates(given_.logits_BKV, 9))
    ]
    assert all(torch.equal(tree.tokens_BN, trees[0].tokens_BN) for tree in trees)
    assert all(torch.equal(tree.parent_BN, trees[0].parent_BN) for tree in trees)


def test_noise_ranks_nodes_by_the_noisy_law():
    corrector = TableCorrector.random(9, batch=3, slots=4, count=5)
    noise = torch.randn(3, 4, 5, dtype=torch.float64)
    tree = grown(corrector, corrector.prepared(), shape(12, contain_chain=False), noise)
    for row in range(3):
        plain = corrector.children(row)

        def noisy(path, row=row, plain=plain):
            total = torch.tensor(plain(path), dtype=torch.float64) + noise[row, len(path)]
            return total.log_softmax(dim=-1).tolist()

        check_same(paths(tree, row), best_first(noisy, 4, 12))


def test_the_chain_of_a_noisy_tree_is_the_noisy_chain():
    corrector = TableCorrector.random(10, batch=6, slots=4, count=5)
    noise = torch.randn(6, 4, 5, dtype=torch.float64) * 2
    chain = grow_chain(corrector, corrector.prepared(), 4, noise).tokens_BK
    tree = grown(corrector, corrector.prepared(), shape(4, lanes=2, ledger=8), noise)
    assert torch.equal(tree.tokens_BN[:, 1:], chain)


def test_a_smaller_budget_is_a_slice_of_a_larger_one():
    corrector = TableCorrector.random(11, batch=3, slots=5, count=5)
    for chain in (True, False):
        large = grown(corrector, corrector.prepared(), shape(20, contain_chain=chain))
        for nodes in (0, 1, 7, 19):
            small = grown(
                corrector, corrector.prepared(), shape(nodes, lanes=20, ledger=20, contain_chain=chain)
            )
            first = first_nodes(large, nodes + 1)
            check_whole(first)
            assert torch.equal(first.tokens_BN, small.tokens_BN)
            assert torch.equal(first.parent_BN, small.parent_BN)
            assert torch.equal(first.sees_BNN, small.sees_BNN)


def test_certain_tokens_do_not_outrank_their_parents():
    """A log-probability of 0 may come as minus zero, and minus zero plus zero is zero."""
    corrector = TableCorrector.random(12, batch=1, slots=2, count=1, rows=2)
    corrector.table[0, 0, 0], corrector.table[0, 1, 0] = -0.0, 0.0
    tree = grown(corrector, corrector.prepared(), shape(1, lanes=1, ledger=1, contain_chain=False))
    assert paths(tree, 0) == [((0,), 0.0)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"depth_bonus": 0.1}, "depth bonus: got 0.1, expected at most 0"),
        ({"lanes": 0}, "got 0 lanes and a ledger of 4"),
        ({"lanes": 5}, "got 5 lanes and a ledger of 4"),
    ],
)
def test_shapes_that_could_not_grow_a_tree_are_refused(changes, expected):
    with pytest.raises(ValueError, match=expected):
        shape(4, **changes)


KEYS = st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 1e-45, -1e-45, -3.5, 3e38, -3e38])


@given(st.lists(st.one_of(KEYS, st.floats(width=32, allow_nan=False)), min_size=1, max_size=40), st.data())
def test_top_indices_equal_a_stable_sort(keys, data):
    count = data.draw(st.integers(0, len(keys)))
    row = torch.tensor([keys, keys[::-1]], dtype=torch.float32)
    expected = row.sort(dim=1, descending=True, stable=True).indices[:, :count]
    assert torch.equal(top_indices(row, count), expected)


def test_top_indices_of_a_view():
    keys = torch.randn(7, 3)
    assert torch.equal(top_indices(keys.T, 7), keys.T.sort(dim=1, descending=True).indices)
