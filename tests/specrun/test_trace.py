"""What a trace says of a round, against the generation itself and a forward pass without cache."""

import pytest

from specrun import DraftOptions, Sampling
from specrun.trace import trace

from doubles.drafters import oracle
from doubles.engines import engine_for, scripted_engine, small_target
from reference.plain import next_law

PROMPT = [3, 1, 4, 1, 5]


def walk(one):
    """Tokens of the accepted path, anchor first."""
    return [node.token_id for node in one.nodes if node.accepted]


@pytest.mark.parametrize("name", ["ar", "dflash", "domino", "ddtree", "dsparktree"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_rounds_add_up_to_the_answer(name, temperature):
    engine = engine_for(name, small_target())
    sampling = Sampling(max_new_tokens=30, temperature=temperature, seed=5)
    seen = trace(engine, PROMPT, sampling)
    plain = engine.generate(PROMPT, sampling)
    ids = seen.generation.token_ids
    assert seen.prompt_ids == PROMPT
    assert ids == plain.token_ids
    assert len(seen.rounds) == plain.stats.rounds
    first = 1
    for one in seen.rounds:
        assert one.first == first
        # the anchor is the token before, and what was accepted stands behind it, then the target's own
        new = [*walk(one)[1:], one.bonus.token_id]
        assert ids[first - 1] == one.nodes[0].token_id
        assert ids[first : first + one.kept] == new[: one.kept]
        assert one.accepted == len(new) - 1
        first += one.kept
    assert first == len(ids)
    assert set(seen.rounds[0].stage_seconds) == set(seen.generation.stats.stage_seconds)
    total = sum(one.stage_seconds["verify"] for one in seen.rounds)
    assert total == pytest.approx(seen.generation.stats.stage_seconds["verify"])


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_probabilities_are_those_of_the_models(temperature):
    target = small_target()
    engine = engine_for("ddtree", target, options=DraftOptions(tree_budget=6))
    at = Sampling(temperature=temperature or 1.0)
    seen = trace(engine, PROMPT, Sampling(max_new_tokens=12, temperature=temperature, seed=1))
    for one in seen.rounds:
        behind = PROMPT + seen.generation.token_ids[: one.first - 1]
        for index, node in enumerate(one.nodes):
            if index == 0:
                assert (node.depth, node.draft, node.target) == (0, 1.0, 1.0)
                continue
            parent = one.nodes[node.parent]
            assert node.depth == parent.depth + 1
            assert node.path == pytest.approx(parent.path * node.draft, rel=1e-5)
            path, above = [], node.parent
            while above:
                path.insert(0, one.nodes[above].token_id)
                above = one.nodes[above].parent
            law = next_law(target, [*behind, one.nodes[0].token_id, *path], [], at)
            assert node.target == pytest.approx(law[node.token_id], abs=1e-6)
            best = sorted(range(len(law)), key=lambda token: -law[token])[:4]
            assert [choice.token_id for choice in parent.choices] == best


def test_a_cut_round_keeps_fewer_than_it_accepted():
    target = small_target()
    answer = engine_for("ar", target).generate(PROMPT, Sampling(max_new_tokens=20)).token_ids
    engine = scripted_engine("chain", target, oracle, [PROMPT + answer])
    seen = trace(engine, PROMPT, Sampling(max_new_tokens=3))
    assert [(one.kept, one.accepted) for one in seen.rounds] == [(2, 5)]


def test_an_answer_of_one_token_has_no_rounds():
    seen = trace(engine_for("dflash", small_target()), PROMPT, Sampling(max_new_tokens=1))
    assert (seen.rounds, len(seen.generation.token_ids)) == ((), 1)
