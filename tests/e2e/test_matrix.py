"""Ends, edges and reuse: what goes wrong in engines that decode blocks, one test per way.

Expected ids come from plain decoding without cache (`reference.plain`), cut there by its own rule.
"""

import math
from functools import cache

import pytest
import torch

from specrun import DraftOptions, Engine, Sampling, method
from specrun.loop import SPAN
from specrun.stages.prefill import CHUNK, prefill
from specrun.state import allocate
from specrun.step import step

from doubles.drafters import always, mixed, oracle, right_for, wrong
from doubles.engines import (
    ALL_METHODS,
    device_tensors,
    engine_for,
    run_as,
    scripted_engine,
    small_drafter,
    small_target,
)
from doubles.pieces import PIECES
from reference.plain import continuation, cut

BLOCK = 6  # rows of a block of the drafters below, anchor included: a round gives at most as many tokens
LIVELY = {"temperature": 1.0, "seed": 2}
CLOSE = 1e-10  # float64 sums in another order, on values of order 1


@cache
def target():
    return small_target()


@cache
def plain(prompt, sampling, request=0, length=0):
    """Tokens behind a prompt, some more than the sampling asks for."""
    length = length or sampling.max_new_tokens + 2 * BLOCK
    return continuation(target(), list(prompt), sampling, request=request, length=length).tokens


def drafting(growth, rule, prompts, samplings, **parts):
    """An engine with scripted drafts for these requests."""
    known = [
        [*prompt, *plain(tuple(prompt), sampling, index)]
        for index, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True))
    ]
    budget = 14 if growth == "tree" else None
    return scripted_engine(growth, target(), rule, known, options=DraftOptions(tree_budget=budget), **parts)


GROWTHS = pytest.mark.parametrize("growth", ["chain", "tree"])
MAIN = pytest.mark.parametrize("name", ["ar", "dflash", "ddtree"])


# Lengths and stops


@pytest.mark.parametrize("name", ALL_METHODS)
def test_every_length_around_a_block(name):
    lengths = [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1]
    samplings = [Sampling(max_new_tokens=length, **LIVELY) for length in lengths]
    answers = engine_for(name, target()).generate_batch([[3, 1]] * len(lengths), samplings)
    for index, (answer, sampling) in enumerate(zip(answers, samplings, strict=True)):
        expected, finish = cut(plain((3, 1), sampling, index), sampling.max_new_tokens)
        assert (answer.token_ids, answer.finish) == (expected, finish)
        assert answer.stats.tokens == sampling.max_new_tokens
        assert (answer.stats.rounds == 0) == (sampling.max_new_tokens < 2)


@GROWTHS
@pytest.mark.parametrize("rule", [oracle, wrong])
def test_a_long_answer(growth, rule):
    prompts, samplings = [[4, 4, 9]], [Sampling(max_new_tokens=200, **LIVELY)]
    (answer,) = drafting(growth, rule, prompts, samplings).generate_batch(prompts, samplings)
    assert answer.token_ids == plain((4, 4, 9), samplings[0])[:200]


@GROWTHS
@pytest.mark.parametrize("rule", [oracle, mixed])
def test_a_stop_id_at_every_place_of_a_block(growth, rule):
    """The answer ends with the stop id, and what was accepted behind it counts nowhere."""
    places = range(2 * BLOCK + 2)
    prompts, samplings = [[5, 2]] * len(places), []
    for place in places:
        samplings.append(first_met_at(place, max_new_tokens=2 * BLOCK + 4))
    answers = drafting(growth, rule, prompts, samplings).generate_batch(prompts, samplings)
    for place, sampling, answer in zip(places, samplings, answers, strict=True):
        assert answer.token_ids == plain((5, 2), sampling, place)[: place + 1]
        assert answer.finish == "stop"
        assert answer.stats.tokens == place + 1
        assert answer.stats.round_tokens == place
        if rule is oracle:
            assert answer.stats.rounds == math.ceil(place / BLOCK)
            assert sum(answer.stats.accepted) <= place


def first_met_at(place, *, max_new_tokens):
    """A sampling whose text has a token at `place` that it has nowhere before; that token stops it."""
    for seed in range(1000):
        sampling = Sampling(max_new_tokens=max_new_tokens, temperature=1.5, seed=seed)
        tokens = plain((5, 2), sampling, place, place + 1)
        if tokens[place] not in tokens[:place]:
            return Sampling(
                max_new_tokens=max_new_tokens, temperature=1.5, seed=seed, stop_ids=(tokens[place],)
            )
    raise AssertionError(place)


@GROWTHS
def test_the_first_of_several_stop_ids_ends_the_answer_and_stops_in_the_prompt_do_not(growth):
    base = Sampling(max_new_tokens=14, **LIVELY)
    tokens = plain((7, 8), base)
    late, early = tokens[9], tokens[4]
    prompt = [7, 8]
    stops = (late, early, 7, 8)
    sampling = Sampling(max_new_tokens=14, stop_ids=stops, **LIVELY)
    (answer,) = drafting(growth, oracle, [prompt], [sampling]).generate_batch([prompt], [sampling])
    assert (answer.token_ids, answer.finish) == cut(tokens, 14, stops)
    assert 0 < len(answer.token_ids) <= 5


@GROWTHS
def test_a_stop_that_fills_the_budget_is_a_stop_and_one_behind_it_is_not_seen(growth):
    base = Sampling(max_new_tokens=9, **LIVELY)
    tokens = plain((7, 8), base)
    place = next(index for index in range(3, 9) if tokens[index] not in tokens[:index])
    for budget, finish in ((place + 1, "stop"), (place, "length")):
        sampling = Sampling(max_new_tokens=budget, stop_ids=(tokens[place],), **LIVELY)
        (answer,) = drafting(growth, oracle, [[7, 8]], [sampling]).generate_batch([[7, 8]], [sampling])
        assert (answer.token_ids, answer.finish) == (tokens[:budget], finish)


@MAIN
def test_a_first_token_that_stops_ends_the_answer(name):
    tokens = plain((7, 8), Sampling(max_new_tokens=4, **LIVELY))
    sampling = Sampling(max_new_tokens=4, stop_ids=(tokens[0],), **LIVELY)
    answer = engine_for(name, target()).generate([7, 8], sampling)
    assert (answer.token_ids, answer.finish, answer.stats.rounds) == (tokens[:1], "stop", 0)


def test_the_models_own_stop_ids_hold_unless_the_request_names_others():
    tokens = plain((7, 8), Sampling(max_new_tokens=8, **LIVELY))
    engine = engine_for("dflash", target(), stop_ids=(tokens[3],))
    own = engine.generate([7, 8], Sampling(max_new_tokens=8, **LIVELY))
    none = engine.generate([7, 8], Sampling(max_new_tokens=8, stop_ids=(), **LIVELY))
    assert (own.token_ids, own.finish) == cut(tokens, 8, (tokens[3],))
    assert (none.token_ids, none.finish) == cut(tokens, 8)


# Accounting


@GROWTHS
@pytest.mark.parametrize("shifted", [False, True])
def test_an_oracle_gives_a_whole_block_per_round(growth, shifted):
    path = BLOCK + 1 if shifted else BLOCK
    sampling = Sampling(max_new_tokens=1 + 4 * path, **LIVELY)
    known = [[6, *plain((6,), sampling)]]
    engine = scripted_engine(growth, target(), oracle, known, small_drafter(target(), shifted=shifted))
    stats = engine.generate([6], sampling).stats
    assert (stats.rounds, stats.round_tokens, stats.tokens) == (4, 4 * path, 1 + 4 * path)
    assert stats.tokens_per_round == path
    assert stats.acceptance_by_depth == [1.0] * (path - 1)
    assert stats.verified_rows == 4 * (path if growth == "chain" else 33)


@GROWTHS
@pytest.mark.parametrize("good", range(BLOCK - 1))
def test_drafts_right_for_some_slots_give_as_many_tokens_and_one(growth, good):
    sampling = Sampling(max_new_tokens=1 + 3 * (good + 1), **LIVELY)
    engine = drafting(growth, right_for(good), [[6, 2]], [sampling])
    stats = engine.generate([6, 2], sampling).stats
    if growth == "chain":
        assert (stats.rounds, stats.tokens_per_round) == (3, good + 1)
        assert stats.acceptance_by_depth == [1.0] * good + [0.0]
        assert stats.tried == [3] * (good + 1) + [0] * (BLOCK - 2 - good)
    else:
        assert stats.rounds <= 3  # a tree may hold the right token beside the wrong one


@GROWTHS
def test_drafts_that_are_never_right_give_one_token_per_round(growth):
    sampling = Sampling(max_new_tokens=7, **LIVELY)
    known = [[6, 2, *plain((6, 2), sampling)]]
    options = DraftOptions(tree_budget=5 if growth == "tree" else None)
    engine = scripted_engine(growth, target(), always_wrong(known[0]), known, options=options)
    stats = engine.generate([6, 2], sampling).stats
    if growth == "chain":
        assert (stats.rounds, stats.tokens_per_round) == (6, 1.0)


def always_wrong(script):
    """One token that the text never holds."""
    return always(next(token for token in range(31) if token not in script))


# Prompts and the cache


@MAIN
def test_prompts_around_the_chunk_of_prefill(name):
    long = small_target(max_positions=640)
    lengths = [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 1]
    prompts = [[(index * index + length) % 31 for index in range(length)] for length in lengths]
    sampling = Sampling(max_new_tokens=4, **LIVELY)
    answers = engine_for(name, long).generate_batch(prompts, sampling)
    for request, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        assert answer.token_ids == continuation(long, prompt, sampling, request=request, length=4).tokens


@MAIN
def test_a_prompt_of_no_tokens_is_refused(name):
    with pytest.raises(ValueError, match="prompt: got no tokens"):
        engine_for(name, target()).generate([], Sampling())


@GROWTHS
@pytest.mark.parametrize("rule", [oracle, mixed])
def test_answers_up_to_the_last_position(growth, rule):
    """Blocks reach behind the end of both models there; the text is the plain one all the same."""
    limit = 48
    short = small_target(max_positions=limit)
    prompts = [
        [index % 31 for index in range(length)] for length in (1, limit - 9, limit - 2, limit - 1, limit)
    ]
    samplings = [Sampling(max_new_tokens=limit - len(prompt), **LIVELY) for prompt in prompts]
    texts = [
        continuation(short, prompt, sampling, request=index, length=sampling.max_new_tokens).tokens
        for index, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True))
    ]
    known = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    engine = scripted_engine(growth, short, rule, known)
    answers = engine.generate_batch(prompts, samplings)
    assert [answer.token_ids for answer in answers] == texts
    assert {answer.finish for answer in answers} == {"length"}


@MAIN
def test_one_position_too_many_is_refused(name):
    engine = engine_for(name, small_target(max_positions=48))
    with pytest.raises(ValueError, match="expected at most 48 together"):
        engine.generate([1] * 40, Sampling(max_new_tokens=9))


def test_the_drafters_limit_counts_too():
    engine = engine_for("dflash", target(), small_drafter(target(), max_positions=32))
    assert engine.context == 32
    with pytest.raises(ValueError, match="expected at most 32 together"):
        engine.generate([1] * 30, Sampling(max_new_tokens=3))


def test_a_long_prompt_that_ends_at_once_leaves_its_row_in_order():
    """Its row idles while shorter ones go on, and must not write where they do not look."""
    samplings = [Sampling(max_new_tokens=12, **LIVELY), Sampling(max_new_tokens=1, **LIVELY)]
    for name in ("ar", "dflash", "ddtree"):
        short, long = engine_for(name, target()).generate_batch([[1, 2], [5] * (2 * SPAN + 9)], samplings)
        assert short.token_ids == plain((1, 2), samplings[0])[:12]
        assert len(long.token_ids) == 1


# Reuse


@MAIN
def test_a_request_is_the_same_again_after_another_one(name):
    engine = engine_for(name, target())
    one = ([9, 1, 1], Sampling(max_new_tokens=20, repetition_penalty=1.2, **LIVELY))
    other = ([2] * 40, Sampling(max_new_tokens=30, temperature=0.6, top_k=3, seed=8))
    first, _, third = (engine.generate(*request) for request in (one, other, one))
    assert first.token_ids == third.token_ids == plain((9, 1, 1), one[1])[:20]
    assert first.stats.rounds == third.stats.rounds


@MAIN
def test_an_abandoned_stream_leaves_no_trace(name):
    engine = engine_for(name, target())
    sampling = Sampling(max_new_tokens=20, presence_penalty=0.5, **LIVELY)
    stream = engine.stream([8] * 30, Sampling(max_new_tokens=40, frequency_penalty=1.0, **LIVELY))
    for _ in range(4):
        next(stream)
    stream.close()
    assert engine.generate([9, 1], sampling).token_ids == plain((9, 1), sampling)[:20]


def test_a_second_generation_ends_the_first_with_an_error():
    engine = engine_for("dflash", target())
    sampling = Sampling(max_new_tokens=12, **LIVELY)
    stream = engine.stream([8, 3], sampling)
    next(stream)
    assert engine.generate([9, 1], sampling).token_ids == plain((9, 1), sampling)[:12]
    with pytest.raises(ValueError, match="one at a time"):
        list(stream)


@MAIN
@pytest.mark.parametrize("poison", [1e30, math.nan])
def test_what_unused_memory_holds_does_not_matter(name, poison):
    """Prefill and rounds read rows that nobody has written for this request; they weigh nothing."""
    engine = engine_for(name, target())
    sampling = Sampling(max_new_tokens=20, frequency_penalty=0.3, **LIVELY)
    prompts = [[9, 1, 1], [4] * 20]
    expected = [answer.token_ids for answer in engine.generate_batch(prompts, sampling)]
    for key, tensor in device_tensors(engine._state).items():
        if tensor.is_floating_point() and not key.startswith("law."):
            tensor.fill_(poison)
        elif key in {"tokens_BT", "output_BV", "features_count_B"}:
            tensor.fill_(7)
    assert [answer.token_ids for answer in engine.generate_batch(prompts, sampling)] == expected


# Trees


@pytest.mark.parametrize("name", ["ddtree", "dflash"])
@pytest.mark.parametrize("rule", [oracle, mixed])
def test_caches_behind_some_rounds_are_those_of_a_fresh_prefill(name, rule):
    """Keys, values and features are compacted to the accepted path, for target and drafter."""
    prompt, sampling = [5, 2, 2, 9], Sampling(max_new_tokens=60, **LIVELY)
    engine = drafting({"ddtree": "tree", "dflash": "chain"}[name], rule, [prompt], [sampling])
    parts, plan = engine.parts, engine.plan_for([sampling])

    def fresh(tokens):
        state = engine._state = allocate(
            parts.target, parts.drafter, batch=1, capacity=128, path=plan.path, penalties=False
        )
        state.admit(0, sampling, (), 0)
        prefill(state, parts.target, parts.drafter, 0, torch.tensor(tokens), plan.law)
        return state

    state = fresh(prompt)
    with torch.no_grad():
        for _ in range(5):
            step(state, parts, plan, span=128)
        length = int(state.length_B)
        assert length >= len(prompt) + 5
        start, count = int(state.features_start_B), int(state.features_count_B)
        kept = state.features_BPF[:, :count]
        tokens = state.tokens_BT[0, : length + 1].tolist()
        again = fresh(tokens[:length])
        assert start + count == length
        for ours, theirs in (
            (state.target_kv.key_LBGTH[..., :length, :], again.target_kv.key_LBGTH[..., :length, :]),
            (state.target_kv.value_LBGTH[..., :length, :], again.target_kv.value_LBGTH[..., :length, :]),
            (state.draft_kv.key_LBGTH[..., :start, :], again.draft_kv.key_LBGTH[..., :start, :]),
            (state.draft_kv.value_LBGTH[..., :start, :], again.draft_kv.value_LBGTH[..., :start, :]),
        ):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=CLOSE)
        # the last round's features have not reached the drafter yet
        positions = torch.arange(start, length)[None]
        rows = parts.drafter.context_kv(parts.drafter.context(kept), positions)
        for layer, (key, value) in enumerate(rows):
            torch.testing.assert_close(
                key, again.draft_kv.key_LBGTH[layer][..., start:length, :], rtol=0, atol=CLOSE
            )
            torch.testing.assert_close(
                value, again.draft_kv.value_LBGTH[layer][..., start:length, :], rtol=0, atol=CLOSE
            )
        assert again.tokens_BT[0, length] == tokens[length]


@pytest.mark.parametrize("budget", [0, 1, 2, BLOCK - 1, 200, 256])
def test_every_budget_of_a_tree(budget):
    sampling = Sampling(max_new_tokens=15, **LIVELY)
    engine = engine_for("ddtree", target(), options=DraftOptions(tree_budget=budget))
    answer = engine.generate([1, 7], sampling)
    assert answer.token_ids == plain((1, 7), sampling)[:15]
    assert answer.stats.verified_rows == answer.stats.rounds * (budget + 1)
    if budget == 0:
        assert answer.stats.rounds == 14


def test_a_tree_accepts_at_least_what_its_chain_does():
    sampling = Sampling(max_new_tokens=24)
    prompts = [[token, 3] for token in range(8)]
    drafter = small_drafter(target())
    chains = engine_for("dflash", target(), drafter).generate_batch(prompts, sampling)
    trees = engine_for("ddtree", target(), drafter, options=DraftOptions(tree_budget=24)).generate_batch(
        prompts, sampling
    )
    assert sum(one.stats.rounds for one in trees) <= sum(one.stats.rounds for one in chains)


def test_no_tree_grows_deeper_than_the_block():
    sampling = Sampling(max_new_tokens=1 + 2 * BLOCK, **LIVELY)
    engine = drafting("tree", oracle, [[6]], [sampling])
    stats = engine.generate([6], sampling).stats
    assert (stats.rounds, len(stats.tried)) == (2, BLOCK - 1)


# Text


@MAIN
def test_stream_batch_and_one_call_give_the_same(name):
    assert PIECES.size == target().config.vocab_size
    engine = engine_for(name, target(), tokenizer=PIECES)
    sampling = Sampling(max_new_tokens=40, temperature=1.0, seed=6)
    one = engine.generate("the \uc0bc", sampling)
    streamed = list(engine.stream("the \uc0bc", sampling))
    batch, other = engine.generate_batch(["the \uc0bc", "stop"], sampling)
    assert "".join(piece.text for piece in streamed) == one.text == batch.text
    assert [token for piece in streamed for token in piece.token_ids] == one.token_ids == batch.token_ids
    assert streamed[-1].generation.text == one.text
    assert [piece.generation is None for piece in streamed] == [True] * (len(streamed) - 1) + [False]
    assert one.text == PIECES.decode(one.token_ids)
    assert run_as(engine, PIECES.encode("stop", special=True), sampling, 1).tokens == other.token_ids


@GROWTHS
@pytest.mark.parametrize("rule", [oracle, mixed])
def test_a_stop_text_cuts_ids_text_and_counters(growth, rule):
    """At every place of a block: the token that completes the stop text is the last one, though more were accepted."""
    places = range(2 * BLOCK)
    cases = [ended_by_text(place) for place in places]
    prompts, samplings = [[7, 3]] * len(cases), [sampling for sampling, _ in cases]
    engine = drafting(growth, rule, prompts, samplings, tokenizer=PIECES)
    answers = engine.generate_batch(prompts, samplings)
    for place, (sampling, text), answer in zip(places, cases, answers, strict=True):
        assert answer.token_ids == plain((7, 3), sampling, place)[: place + 1]
        assert (answer.text, answer.finish) == (text, "stop")
        assert (answer.stats.tokens, answer.stats.round_tokens) == (place + 1, place)
    streamed = list(engine.stream([7, 3], samplings[0]))
    assert "".join(piece.text for piece in streamed) == answers[0].text


def ended_by_text(place):
    """A sampling with a stop text that the token at `place` completes, and the text before it."""
    for seed in range(1000):
        tokens = plain((7, 3), Sampling(temperature=1.5, seed=seed), place, place + 1)
        text = PIECES.decode(tokens)
        for length in (4, 3, 2, 1):
            stop = text[-length:]
            if stop and "\ufffd" not in stop and completed_at(tokens, stop) == place:
                sampling = Sampling(max_new_tokens=2 * BLOCK + 9, temperature=1.5, seed=seed, stop=(stop,))
                return sampling, text[: text.index(stop)]
    raise AssertionError(place)


def completed_at(tokens, stop):
    """The token that completes the text `stop` for the first time."""
    return next(count for count in range(len(tokens)) if stop in PIECES.decode(tokens[: count + 1]))


def test_stop_texts_need_a_tokenizer():
    with pytest.raises(ValueError, match="stop: texts need a tokenizer"):
        Engine(target(), method("ar")).generate([1], Sampling(max_new_tokens=1, stop=("x",)))
