"""Acceptance rules: the walk against following a dictionary, the residual against the definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speccorrect.accept import Keys, match, reject, target_draws, target_noise
from speccorrect.law import draw
from speccorrect.noise import Stream, noise_key
from speccorrect.products import Candidates, Proposal
from speccorrect.tree import build_tree, chain_tree

from reference.chi_square import distance

BOUND = 4.5  # standard normal deviates, fixed seeds


@st.composite
def trees(draw_, most=20, vocab=4):
    """Tokens, parents and life of a random tree with distinct siblings, and a draw of the target behind every node."""
    nodes = draw_(st.integers(1, most))
    tokens, parents, valid, taken = [draw_(st.integers(0, vocab - 1))], [0], [True], set()
    for node in range(1, nodes):
        parent, token = draw_(st.integers(0, node - 1)), draw_(st.integers(0, vocab - 1))
        alive = valid[parent] and (parent, token) not in taken and draw_(st.integers(0, 9)) > 0
        if alive:
            taken.add((parent, token))
        tokens.append(token)
        parents.append(parent if alive else 0)
        valid.append(alive)
    draws = draw_(st.lists(st.integers(0, vocab - 1), min_size=nodes, max_size=nodes))
    return tokens, parents, valid, draws


def follow(tokens, parents, valid, draws):
    """The walk by looking up, at every node, the child that carries the target's draw."""
    children = {(parents[node], tokens[node]): node for node in range(len(tokens) - 1, 0, -1) if valid[node]}
    path = [0]
    while (path[-1], draws[path[-1]]) in children:
        path.append(children[path[-1], draws[path[-1]]])
    return path, draws[path[-1]]


def built(tokens, parents, valid):
    score = torch.zeros(1, len(tokens))
    return build_tree(
        torch.tensor([tokens]), torch.tensor([parents]), torch.tensor([valid]), score, levels=len(tokens)
    )


@given(trees())
def test_the_walk_follows_the_draws(tree):
    tokens, parents, valid, draws = tree
    path, bonus = follow(*tree)
    verdict = match(built(tokens, parents, valid), torch.tensor([draws]))
    assert verdict.count_B.tolist() == [len(path)]
    assert verdict.bonus_B.tolist() == [bonus]
    padding = [path[-1]] * (len(tokens) - len(path))
    assert verdict.path_BP.tolist() == [path + padding]


@given(trees(vocab=2), trees(vocab=2))
def test_rows_of_a_batch_walk_by_themselves(one, two):
    nodes = min(len(one[0]), len(two[0]))
    pair = [tuple(column[:nodes] for column in tree) for tree in (one, two)]
    tokens, parents, valid, draws = (torch.tensor([tree[k] for tree in pair]) for k in range(4))
    tree = build_tree(tokens, parents, valid, torch.zeros(2, nodes), levels=nodes)
    verdict = match(tree, draws)
    for row in range(2):
        path, bonus = follow(*pair[row])
        assert verdict.path_BP[row, : len(path)].tolist() == path
        assert verdict.count_B[row] == len(path)
        assert verdict.bonus_B[row] == bonus


def test_the_anchors_own_token_is_never_compared():
    """The root is accepted even where its token happens to differ from the draw behind it, which is its own parent."""
    verdict = match(built([3, 1], [0, 0], [True, True]), torch.tensor([[1, 2]]))
    assert verdict.path_BP.tolist() == [[0, 1]]
    assert verdict.bonus_B.tolist() == [2]


def test_a_dead_node_that_carries_the_draw_is_not_taken():
    verdict = match(built([3, 1], [0, 0], [True, False]), torch.tensor([[1, 2]]))
    assert verdict.count_B.tolist() == [1]
    assert verdict.bonus_B.tolist() == [1]


def keys(batch: int, anchor=0) -> Keys:
    return Keys(
        seed_B=torch.arange(batch),
        request_B=torch.zeros(batch, dtype=torch.int64),
        anchor_B=torch.full((batch,), anchor),
    )


def test_a_draw_depends_on_position_and_not_on_the_node():
    """Two rows of one depth draw alike, and the next round draws alike where this one ended."""
    row = torch.randn(1, 1, 12)
    logits = row.expand(1, 5, -1)
    depth = torch.tensor([[0, 1, 1, 2, 2]])
    noise = target_noise(keys(1, anchor=40), 4, 12)
    draws = target_draws(logits, depth, torch.ones(1), noise)
    assert draws[0, 1] == draws[0, 2]
    assert draws[0, 3] == draws[0, 4]
    later = target_noise(keys(1, anchor=42), 4, 12)
    assert torch.equal(noise[:, 2:], later[:, :2])
    single = draw(
        row,
        torch.ones(1),
        noise_key(torch.tensor(0), torch.tensor(0), torch.tensor([[43]])),
        torch.arange(12),
    )
    assert single.item() == draws[0, 3]


def test_draws_without_noise_are_greedy():
    logits = torch.randn(2, 4, 9)
    depth = torch.zeros(2, 4, dtype=torch.int64)
    assert torch.equal(target_draws(logits, depth, torch.ones(2), None), logits.argmax(dim=-1))


def chain(batch, p_rows, q_rows, ids, choice):
    """A proposal whose q is `q_rows` over `ids`, and the target's logits for it."""
    q = torch.tensor(q_rows, dtype=torch.float64)
    slots, count = q.shape
    listed = torch.tensor(ids).expand(batch, slots, count)
    scores = q.log().expand(batch, -1, -1)
    proposal = Proposal(
        tokens_BK=listed.gather(-1, choice[..., None]).squeeze(-1),
        choice_BK=choice,
        scores_BKC=scores,
        candidates=Candidates(
            ids_BKC=listed, base_BKC=scores, lse_BK=torch.zeros(batch, slots, dtype=torch.float64)
        ),
    )
    return proposal, torch.tensor(p_rows, dtype=torch.float64).log().expand(batch, -1, -1)


P_ROWS = [[0.5, 0.1, 0.3, 0.1], [0.25, 0.25, 0.25, 0.25], [0.7, 0.1, 0.1, 0.1]]
Q_ROWS = [[0.2, 0.8], [0.6, 0.4]]
IDS = [1, 2]  # tokens 0 and 3 are out of the draft's reach


def test_rejection_accepts_as_often_as_the_laws_overlap_and_redraws_from_the_rest():
    batch = 60_000
    drawn = torch.multinomial(torch.tensor(Q_ROWS), batch, replacement=True).T
    proposal, logits = chain(batch, P_ROWS, Q_ROWS, IDS, drawn)
    one = torch.ones(batch)
    verdict = reject(proposal, logits, one, one, keys(batch))
    # overlap of slot 1: min(.1, .2) + min(.3, .8); of slot 2: .25 + .25
    law = {1: 0.6, 2: 0.4 * 0.5, 3: 0.4 * 0.5}
    assert abs(distance(verdict.count_B.tolist(), law)) < BOUND
    # what p has above q: .5 of token 0 and .1 of token 3 at slot 1; .25 of each of those at slot 2
    residuals = {1: {0: 5 / 6, 3: 1 / 6}, 2: {0: 0.5, 3: 0.5}, 3: dict(enumerate(P_ROWS[2]))}
    for count, residual in residuals.items():
        bonus = verdict.bonus_B[verdict.count_B == count].tolist()
        assert abs(distance(bonus, residual)) < BOUND
    # and together the first token has the target's law
    first = torch.where(verdict.count_B > 1, proposal.tokens_BK[:, 0], verdict.bonus_B)
    assert abs(distance(first.tolist(), dict(enumerate(P_ROWS[0])))) < BOUND


def test_the_path_of_a_rejected_chain_repeats_its_last_row():
    batch = 50
    drawn = torch.multinomial(torch.tensor(Q_ROWS), batch, replacement=True).T
    proposal, logits = chain(batch, P_ROWS, Q_ROWS, IDS, drawn)
    verdict = reject(proposal, logits, torch.ones(batch), torch.ones(batch), keys(batch))
    assert set(verdict.count_B.tolist()) == {1, 2, 3}
    for row in range(batch):
        last = int(verdict.count_B[row]) - 1
        assert verdict.path_BP[row].tolist() == [min(place, last) for place in range(3)]


def test_equal_laws_accept_everything():
    """Nothing is left to redraw from: the bonus behind the chain is the target's."""
    batch = 2000
    p = [[0.3, 0.7, 0.0, 0.0], [0.6, 0.4, 0.0, 0.0], [0.2, 0.3, 0.4, 0.1]]
    q = [row[:2] for row in p[:2]]
    drawn = torch.multinomial(torch.tensor(q), batch, replacement=True).T
    proposal, logits = chain(batch, p, q, [0, 1], drawn)
    verdict = reject(proposal, logits, torch.ones(batch), torch.ones(batch), keys(batch))
    assert (verdict.count_B == 3).all()
    assert abs(distance(verdict.bonus_B.tolist(), dict(enumerate(p[2])))) < BOUND


@pytest.mark.parametrize(("drafted", "count", "bonus"), [([0, 2], 2, 1), ([0, 1], 3, 0), ([2, 1], 1, 0)])
def test_at_temperature_zero_rejection_is_a_comparison(drafted, count, bonus):
    p = [[0.5, 0.2, 0.2, 0.1], [0.1, 0.7, 0.1, 0.1], [0.7, 0.1, 0.1, 0.1]]  # the greedy tokens are 0, 1 and 0
    q = [[0.7 if token == best else 0.1 for token in range(4)] for best in drafted]
    proposal, logits = chain(1, p, q, [0, 1, 2, 3], torch.tensor([drafted]))
    verdict = reject(proposal, logits, torch.zeros(1), torch.zeros(1), keys(1))
    assert verdict.count_B.tolist() == [count]
    assert verdict.bonus_B.tolist() == [bonus]


@pytest.mark.parametrize("whole", [True, False])
def test_the_residual_is_what_the_target_has_above_the_draft(whole):
    p = torch.tensor([0.5, 0.2, 0.2, 0.1], dtype=torch.float64)
    q = torch.tensor([0.1, 0.6, 0.3, 0.0], dtype=torch.float64)
    batch = 20_000
    order = torch.tensor([2, 0, 3, 1])
    ids = None if whole else order.expand(batch, 1, 4)
    scores = (q if whole else q[order]).log().expand(batch, 1, -1)
    token = torch.full((batch, 1), 1)
    choice = token if whole else torch.full((batch, 1), 3)
    proposal = Proposal(
        tokens_BK=token,
        choice_BK=choice,
        scores_BKC=scores,
        candidates=Candidates(ids_BKC=ids, base_BKC=scores, lse_BK=scores.logsumexp(dim=-1)),
    )
    logits = p.log().expand(batch, 2, -1)
    verdict = reject(proposal, logits, torch.ones(batch), torch.ones(batch), keys(batch))
    refused = verdict.count_B == 1
    # token 1 is offered always, and taken one time in three
    assert abs(distance(refused.tolist(), {True: 2 / 3, False: 1 / 3})) < BOUND
    bonus = verdict.bonus_B[refused].tolist()
    assert abs(distance(bonus, {0: 0.8, 3: 0.2})) < BOUND


def test_test_and_residual_have_noise_of_their_own():
    given_ = keys(3, anchor=7)
    offset = torch.arange(1, 4)
    streams = [given_.at(offset, stream) for stream in Stream]
    assert torch.stack(streams).unique().numel() == len(Stream) * 9


def test_a_chain_as_a_tree_is_matched_as_a_chain():
    choice = torch.tensor([[1, 0]])
    proposal, _ = chain(1, P_ROWS, Q_ROWS, IDS, choice)
    tree = chain_tree(torch.tensor([3]), proposal)
    for draws, count in (([2, 1, 0], 3), ([2, 0, 0], 2), ([1, 1, 0], 1)):
        verdict = match(tree, torch.tensor([draws]))
        assert verdict.count_B.tolist() == [count]
        assert verdict.bonus_B.tolist() == [draws[count - 1]]
