"""Requests through batch rows: refilling, order, what is yielded when."""

import pytest

from specrun import Sampling
from specrun.loop import Request, decode
from specrun.state import MAX_STOP_IDS

from doubles.drafters import mixed
from doubles.engines import engine_for, scripted_engine, small_target
from reference.plain import continuation

LENGTHS = (0, 9, 1, 4, 12, 1, 0, 7)


@pytest.fixture(name="engine", scope="module")
def _engine():
    return engine_for("dflash", small_target())


def requests():
    return [
        Request(
            index=index,
            prompt=[3, index],
            sampling=Sampling(max_new_tokens=length, temperature=1.0),
            stop_ids=(),
        )
        for index, length in enumerate(LENGTHS)
    ]


def run(engine, made, rows):
    sampling = [one.sampling for one in made]
    plan = engine.plan_for(sampling)
    state = engine._buffers(rows, 20, plan)
    return list(decode(state, engine.parts, plan, made))


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 11])
def test_any_number_of_rows_gives_the_same_answers(engine, rows):
    made = requests()
    yielded = run(engine, made, rows)
    assert [len(one.tokens) for one in made] == list(LENGTHS)
    assert {one.finish for one in made} == {"length"}
    alone = requests()
    for one in alone:
        run(engine, [one], 1)
    assert [one.tokens for one in made] == [one.tokens for one in alone]
    # every request was seen after each of its rounds and once for its first token, or once if it has none
    for one in made:
        assert sum(seen is one for seen in yielded) == one.stats.rounds + 1


def test_a_batch_that_mixes_settings_treats_each_row_by_its_own():
    target = small_target()
    samplings = [
        Sampling(max_new_tokens=9),
        Sampling(max_new_tokens=9, temperature=1.0, top_k=3),
        Sampling(max_new_tokens=9, frequency_penalty=2.0),
        Sampling(max_new_tokens=9, temperature=0.6, min_p=0.2, seed=-(2**63)),
    ]
    prompts = [[5], [6] * 7, [7, 7], [8] * 30]
    texts = [
        continuation(target, prompt, sampling, request=index, length=15).tokens
        for index, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True))
    ]
    known = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    answers = scripted_engine("chain", target, mixed, known).generate_batch(prompts, samplings)
    assert [answer.token_ids for answer in answers] == [text[:9] for text in texts]


def test_too_many_stop_ids_are_refused(engine):
    stops = tuple(range(MAX_STOP_IDS + 1))
    with pytest.raises(ValueError, match="stop ids: got 17, expected at most 16"):
        engine.generate([1], Sampling(max_new_tokens=2, stop_ids=stops))
    assert engine.generate([1], Sampling(max_new_tokens=2, stop_ids=stops[1:])).token_ids


def test_times_are_counted(engine):
    stats = engine.generate([1, 2], Sampling(max_new_tokens=5)).stats
    assert stats.prompt_tokens == 2
    assert stats.prefill_seconds > 0
    assert stats.decode_seconds > 0
    assert stats.tokens_per_second == stats.round_tokens / stats.decode_seconds
