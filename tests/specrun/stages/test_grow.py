"""Growth inside a round: what the walk relies on holds for every tree, also where the candidates run out."""

import pytest
import torch

from speccorrect.correctors.none import NoCorrector
from speccorrect.grow import TreeShape
from specrun.stages.grow import grow

from doubles.blocks import drafted

SHAPES = {
    "a budget of 0": TreeShape(nodes=0, lanes=1, ledger=1),
    "one node": TreeShape(nodes=1, lanes=1, ledger=1),
    "more nodes than branches give": TreeShape(nodes=40, lanes=40, ledger=40, branches=2),
    "a beam": TreeShape(nodes=12, lanes=3, ledger=12, branches=4),
    "more nodes than there are": TreeShape(nodes=200, lanes=200, ledger=200),
}


def grown(shape, *, slots=3, vocab=5):
    block = drafted(slots=slots, vocab=vocab, shifted=False)
    corrector = NoCorrector()
    prepared = corrector.prepare(block.block, block.borrowed, block.candidates())
    tree = grow(
        corrector, prepared, block.block.anchor_B, slots=slots, shape=shape, noise_BKC=None, coupling=None
    ).tree
    chain = grow(
        corrector, prepared, block.block.anchor_B, slots=slots, shape=None, noise_BKC=None, coupling=None
    ).tree
    return tree, chain


def paths(tree, row):
    """Token paths of the live nodes, and an error if one hangs from a dead or a later node."""
    found = {0: ()}
    for node in range(1, tree.tokens_BN.shape[1]):
        if tree.valid_BN[row, node]:
            parent = int(tree.parent_BN[row, node])
            assert parent in found, (node, parent)
            found[node] = (*found[parent], int(tree.tokens_BN[row, node]))
            assert int(tree.depth_BN[row, node]) == len(found[node])
    return list(found.values())


@pytest.mark.parametrize("shape", SHAPES)
def test_no_path_stands_twice_in_a_tree(shape):
    tree, _ = grown(SHAPES[shape])
    for row in range(2):
        assert len(set(paths(tree, row))) == len(paths(tree, row))


def test_a_node_has_no_more_children_than_branches():
    tree, _ = grown(SHAPES["more nodes than branches give"])
    for row in range(2):
        found = paths(tree, row)
        assert len(found) == 1 + 2 + 4 + 8
        assert all(sum(path[:-1] == parent for path in found[1:]) in {0, 2} for parent in found)


def test_a_huge_budget_holds_every_path_and_no_more():
    tree, _ = grown(SHAPES["more nodes than there are"])
    assert [len(paths(tree, row)) for row in range(2)] == [1 + 5 + 25 + 125] * 2


@pytest.mark.parametrize("budget", [3, 4, 9])
def test_a_tree_holds_the_chain(budget):
    tree, chain = grown(TreeShape(nodes=budget, lanes=budget, ledger=budget))
    for row in range(2):
        assert set(paths(chain, row)) <= set(paths(tree, row))


def test_a_budget_of_0_is_the_anchor():
    tree, chain = grown(SHAPES["a budget of 0"])
    assert torch.equal(tree.tokens_BN, chain.tokens_BN[:, :1])
    assert tree.sees_BNN.all()
