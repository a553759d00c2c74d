"""The law of what is emitted: exact probabilities on a tiny vocabulary against crowds of equal requests.

Under *match* the sample is that of plain decoding, token by token; under *reject* it is another one of the same law.
Seeds are fixed, so a result is what it is; LIKELY and IMPOSSIBLE only say on which side of luck it lies.
"""

from functools import cache

import pytest
import torch

from speccorrect import accept as accept_module
from specrun import DraftOptions, Sampling
from specrun import step as step_module
from specrun.step import step

from doubles.engines import ALL_METHODS, CHAINS, TREES, crowd, engine_for, small_drafter, small_target
from reference.chi_square import distance
from reference.plain import continuation, cut, joint_law

LIKELY, IMPOSSIBLE = 3.5, 8.0
"""Standard deviations: one in four thousand true laws lies beyond the first, none beyond the second."""

VOCAB, PROMPT, CAPACITY = 6, [2, 4], 24
LAWS = {
    "T 1": Sampling(temperature=1.0, seed=1, max_new_tokens=4),
    "T .5, top-p": Sampling(temperature=0.5, top_p=0.95, seed=2, max_new_tokens=4),
    "T 1, top-k": Sampling(temperature=1.0, top_k=4, seed=3, max_new_tokens=4),
    "T .5, penalties": Sampling(
        temperature=0.5, repetition_penalty=1.4, frequency_penalty=0.5, max_new_tokens=4
    ),
}


@cache
def target():
    """Flat enough for every one of the six tokens to have a share of nearly every law."""
    model = small_target(vocab_size=VOCAB, dtype=torch.float32, seed=3)
    model.untied_head.weight.mul_(0.4)
    return model


@cache
def drafter():
    return small_drafter(target(), block_size=4)


@torch.no_grad()
def sample(engine, law, rows):
    """The first token behind the prompt, and the three behind it of every row."""
    state = crowd(engine, PROMPT, law, rows, capacity=CAPACITY)
    plan = engine.plan_for([law])
    while not bool(state.done_B.all()):
        step(state, engine.parts, plan, span=CAPACITY)
    start = len(PROMPT)
    first = state.tokens_BT[:, start].tolist()
    assert len(set(first)) == 1
    return first[0], [tuple(row) for row in state.tokens_BT[:, start + 1 : start + 4].tolist()]


@cache
def joint(name, first):
    return joint_law(target(), PROMPT, [first], LAWS[name], 3)


def engine_of(name, **options):
    return engine_for(name, target(), drafter(), options=DraftOptions(**options) if options else None)


@cache
def plain_sample(law, rows):
    return sample(engine_of("ar"), LAWS[law], rows)


@pytest.mark.parametrize("law", LAWS)
def test_plain_decoding_has_the_law(law):
    first, drawn = plain_sample(law, 4000)
    assert distance(drawn, joint(law, first)) < LIKELY


@pytest.mark.parametrize("law", ["T 1", "T .5, top-p"])
@pytest.mark.parametrize("name", [name for name in ALL_METHODS if name != "ar"])
def test_under_match_every_method_draws_the_same_sample(name, law):
    budget = {"tree_budget": 9} if name in TREES else {}
    first, drawn = sample(engine_of(name, **budget), LAWS[law], 800)
    assert (first, drawn) == plain_sample(law, 800)
    assert distance(drawn, joint(law, first)) < LIKELY


@pytest.mark.parametrize("law", LAWS)
def test_under_reject_the_plain_drafter_has_the_law(law):
    first, drawn = sample(engine_of("dflash", accept="reject"), LAWS[law], 4000)
    assert distance(drawn, joint(law, first)) < LIKELY


@pytest.mark.parametrize("law", ["T 1", "T .5, top-p"])
@pytest.mark.parametrize("name", [name for name in CHAINS if name != "dflash"])
def test_under_reject_every_chain_has_the_law(name, law):
    first, drawn = sample(engine_of(name, accept="reject"), LAWS[law], 1000)
    assert distance(drawn, joint(law, first)) < LIKELY


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_reject_is_exact_at_any_draft_temperature(temperature):
    first, drawn = sample(
        engine_of("dflash", accept="reject", draft_temperature=temperature), LAWS["T 1"], 4000
    )
    assert distance(drawn, joint("T 1", first)) < LIKELY


@pytest.mark.parametrize("law", ["T 1", "T .5, top-p"])
def test_a_soft_q_for_argmax_drafts_is_caught(law, monkeypatch):
    inner = step_module.draft_noise
    monkeypatch.setattr(step_module, "draft_noise", lambda *arguments: inner(*arguments) * 0)
    first, drawn = sample(engine_of("dflash", accept="reject"), LAWS[law], 4000)
    assert distance(drawn, joint(law, first)) > IMPOSSIBLE


@pytest.mark.parametrize("law", ["T 1", "T .5, top-p"])
def test_a_redraw_from_p_itself_is_caught(law, monkeypatch):
    monkeypatch.setattr(accept_module, "_subtract", lambda target_BV, *rest: target_BV)
    first, drawn = sample(engine_of("dflash", accept="reject"), LAWS[law], 4000)
    assert distance(drawn, joint(law, first)) > IMPOSSIBLE


@pytest.mark.parametrize("accept", ["match", "reject"])
def test_a_batch_of_requests_has_the_law_from_its_first_token_on(accept):
    law = Sampling(temperature=1.0, top_p=0.9, seed=9, max_new_tokens=2)
    answers = engine_of("dflash", accept=accept).generate_batch([PROMPT] * 200, law)
    drawn = [tuple(answer.token_ids) for answer in answers]
    assert distance(drawn, joint_law(target(), PROMPT, [], law, 2)) < LIKELY


@pytest.mark.parametrize("name", CHAINS)
def test_greedy_text_under_reject_is_the_plain_text(name):
    law = Sampling(max_new_tokens=9)
    prompts = [[1, token] for token in range(VOCAB)]
    answers = engine_of(name, accept="reject").generate_batch(prompts, law)
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer.token_ids == cut(continuation(target(), prompt, law, length=9).tokens, 9)[0]


def test_a_seed_is_repeated_and_another_one_is_another_text():
    engine = engine_of("dflash")
    law = Sampling(temperature=1.0, seed=4, max_new_tokens=12)
    other = Sampling(temperature=1.0, seed=5, max_new_tokens=12)
    first, second, third = (engine.generate(PROMPT, one).token_ids for one in (law, other, law))
    assert first == third != second
    several = engine.generate_batch([PROMPT] * 3, law)
    assert several[0].token_ids == first
    assert len({tuple(answer.token_ids) for answer in several}) == 3
