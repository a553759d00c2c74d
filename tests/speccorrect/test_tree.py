"""Trees as index tables: sight against walking up node by node, chains, slices."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from speccorrect.products import Candidates, Proposal
from speccorrect.tree import ancestors, build_tree, chain_tree, first_nodes, path_tree, subtree

from reference import heap


@st.composite
def parents(draw, most=24):
    """Parents of a random tree: of every node, one before it."""
    nodes = draw(st.integers(1, most))
    return [0] + [draw(st.integers(0, node - 1)) for node in range(1, nodes)]


def depths(parent: list[int]) -> list[int]:
    found = [0]
    for node in range(1, len(parent)):
        found.append(found[parent[node]] + 1)
    return found


@given(parents(), st.integers(0, 5))
def test_sight_is_what_walking_up_finds(parent, slack):
    levels = max(depths(parent)) + slack
    assert ancestors(torch.tensor([parent]), levels)[0].tolist() == heap.ancestors(parent)


def test_sight_of_a_deep_path():
    for nodes in range(1, 35):
        parent = [max(node - 1, 0) for node in range(nodes)]
        assert ancestors(torch.tensor([parent]), nodes - 1)[0].tolist() == heap.ancestors(parent)


@given(parents(), st.data())
def test_dead_nodes_hang_at_the_root_and_are_seen_by_none(parent, data):
    nodes = len(parent)
    valid = [True]
    for node in range(1, nodes):  # a dead node has no live children
        valid.append(valid[parent[node]] and data.draw(st.booleans()))
    tree = build_tree(
        torch.arange(nodes)[None],
        torch.tensor([parent]),
        torch.tensor([valid]),
        torch.zeros(1, nodes),
        levels=nodes,
    )
    for node in range(1, nodes):
        if valid[node]:
            assert tree.depth_BN[0, node] == depths(parent)[node]
            assert tree.sees_BNN[0, node].tolist() == heap.ancestors(parent)[node]
        else:
            assert tree.depth_BN[0, node] == 0
            assert tree.parent_BN[0, node] == 0
            assert tree.score_BN[0, node] == -float("inf")
            assert tree.sees_BNN[0, node].nonzero().flatten().tolist() == [0, node]
            assert tree.sees_BNN[0, :, node].sum() == 1


def test_a_chain_is_a_tree_without_branches():
    scores = torch.randn(2, 3, 4).log_softmax(dim=-1)
    choice = torch.tensor([[1, 0, 3], [2, 2, 0]])
    ids = torch.stack([torch.stack([torch.randperm(9)[:4] for _ in range(3)]) for _ in range(2)])
    tokens = ids.gather(-1, choice[..., None]).squeeze(-1)
    candidates = Candidates(ids_BKC=ids, base_BKC=scores, lse_BK=torch.zeros(2, 3))
    tree = chain_tree(
        torch.tensor([7, 8]),
        Proposal(tokens_BK=tokens, choice_BK=choice, scores_BKC=scores, candidates=candidates),
    )
    assert tree.tokens_BN.tolist() == [[7, *tokens[0].tolist()], [8, *tokens[1].tolist()]]
    assert tree.parent_BN.tolist() == [[0, 0, 1, 2]] * 2
    assert tree.depth_BN.tolist() == [[0, 1, 2, 3]] * 2
    assert tree.valid_BN.all()
    assert tree.sees_BNN[0].tolist() == heap.ancestors([0, 0, 1, 2])
    running = 0.0
    for slot in range(3):
        running += float(scores[1, slot, choice[1, slot]])
        torch.testing.assert_close(tree.score_BN[1, slot + 1].item(), running)


def test_a_path_of_the_anchor_alone():
    tree = path_tree(torch.tensor([[5]]), torch.zeros(1, 0))
    assert tree.tokens_BN.tolist() == [[5]]
    assert tree.parent_BN.tolist() == [[0]]
    assert tree.sees_BNN.tolist() == [[[True]]]
    assert tree.score_BN.tolist() == [[0.0]]


def test_first_nodes_cut_every_table():
    parent = [0, 0, 1, 0, 2, 3]
    tree = build_tree(
        torch.arange(6)[None],
        torch.tensor([parent]),
        torch.ones(1, 6).bool(),
        -torch.arange(6.0)[None],
        levels=3,
    )
    first = first_nodes(tree, 4)
    assert first.parent_BN.tolist() == [[0, 0, 1, 0]]
    assert first.sees_BNN[0].tolist() == heap.ancestors([0, 0, 1, 0])
    assert first.score_BN.tolist() == [[0.0, -1.0, -2.0, -3.0]]
    assert first.depth_BN.tolist() == [[0, 1, 2, 1]]


@given(parents(), st.data())
def test_a_subtree_keeps_its_nodes_as_they_were(parent, data):
    # with every chosen node come its ancestors
    chosen = {0}
    for node in data.draw(st.sets(st.integers(0, len(parent) - 1))):
        while node not in chosen:
            chosen.add(node)
            node = parent[node]
    kept = sorted(chosen)
    valid = torch.ones(1, len(parent)).bool()
    tree = build_tree(
        torch.arange(len(parent))[None] + 50,
        torch.tensor([parent]),
        valid,
        -torch.arange(float(len(parent)))[None],
        levels=len(parent),
    )
    smaller = subtree(tree, torch.tensor([kept]))
    moved = [kept.index(parent[node]) for node in kept]
    assert smaller.parent_BN.tolist() == [moved]
    assert smaller.sees_BNN[0].tolist() == heap.ancestors(moved)
    assert smaller.depth_BN.tolist() == [[depths(parent)[node] for node in kept]]
    assert smaller.tokens_BN.tolist() == [[node + 50 for node in kept]]
    assert smaller.score_BN.tolist() == [[-float(node) for node in kept]]
    assert smaller.valid_BN.all()
