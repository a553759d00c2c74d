"""Conversations keep their rows: every turn is what a fresh engine gives, though only new ids are read.

Expected ids come from plain decoding without cache (`reference.plain`).
"""

import random
from contextlib import suppress
from functools import cache

import pytest
import torch

from specmodels import attention
from specrun import Sampling
from specrun import loop as loop_module

from doubles.engines import ALL_METHODS, device_tensors, engine_for, small_target
from reference.plain import continuation

LIVELY = {"temperature": 1.0, "top_p": 0.95}
TURNS = 6
CLOSE = 1e-10  # float64 sums in another order, on values of order 1


@cache
def target():
    return small_target()


def plain(prompt, sampling):
    return continuation(target(), prompt, sampling, request=0, length=sampling.max_new_tokens).tokens


@pytest.fixture
def kept(monkeypatch):
    """How many rows each prefill was spared."""
    seen = []
    inner = loop_module.prefill

    def watched(*arguments, kept):
        seen.append(kept)
        return inner(*arguments, kept=kept)

    monkeypatch.setattr(loop_module, "prefill", watched)
    return seen


def ask(engine, prompt, sampling):
    return [token for piece in engine.stream(prompt, sampling, reuse=True) for token in piece.token_ids]


@pytest.mark.parametrize("name", ALL_METHODS)
def test_every_turn_is_that_of_a_fresh_engine(name, kept):
    engine = engine_for(name, target())
    rng = random.Random(4)
    prompt, answers = [1, 2, 3], 0
    for turn in range(TURNS):
        sampling = Sampling(max_new_tokens=rng.choice((1, 2, 6, 17)), seed=turn, stop_ids=(), **LIVELY)
        answer = ask(engine, prompt, sampling)
        assert answer == plain(prompt, sampling)
        # all rows but those of the last round and what the user adds
        assert kept[-1] >= answers - 6
        answers = len(prompt) + len(answer)
        prompt = [*prompt, *answer, *rng.choices(range(31), k=rng.randrange(1, 9))]


@pytest.mark.parametrize("name", ["dflash", "ddtree"])
def test_kept_rows_are_those_of_a_fresh_prefill(name, kept):
    """The drafter's too, whose last rows come a round late: garbage there would only be slow."""
    engine, fresh = engine_for(name, target()), engine_for(name, target())
    first = Sampling(max_new_tokens=17, seed=2, stop_ids=(), **LIVELY)
    one = Sampling(max_new_tokens=1)
    prompt = [8, 1, 8]
    prompt += [*ask(engine, prompt, first), 3]
    assert ask(engine, prompt, one) == ask(fresh, prompt, one)
    assert kept[1] >= 3 + 17 - 6
    assert kept[2] == 0
    ours, theirs = device_tensors(engine._state), device_tensors(fresh._state)
    rows = slice(len(prompt))
    for part in ("target_kv.key", "target_kv.value", "draft_kv.key", "draft_kv.value"):
        torch.testing.assert_close(ours[part][..., rows, :], theirs[part][..., rows, :], rtol=0, atol=CLOSE)


@pytest.mark.parametrize("name", ["ar", "dflash", "ddtree"])
def test_aborted_changed_and_shortened_turns(name, kept):
    """A stream that was closed, an earlier turn that was edited, the same prompt again, and another law."""
    engine = engine_for(name, target())
    rng = random.Random(7)
    before = [5, 6, 7]
    for turn in range(40):
        length = rng.randrange(1, len(before) + 1)
        prompt = [*before[:length], *rng.choices(range(31), k=rng.randrange(4))]
        penalty = rng.choice((0.0, 0.0, 0.6))
        sampling = Sampling(max_new_tokens=14, seed=turn, frequency_penalty=penalty, stop_ids=(), **LIVELY)
        stream, answer, rounds = engine.stream(prompt, sampling, reuse=True), [], rng.randrange(8)
        for count, piece in enumerate(stream):
            answer += piece.token_ids
            if count == rounds:
                stream.close()
        assert answer == plain(prompt, sampling)[: len(answer)]
        before = [*prompt, *answer]
    assert sum(kept) > 100


def test_an_interrupt_inside_a_round_leaves_rows_that_can_be_kept(monkeypatch, kept):
    engine = engine_for("ddtree", target())
    sampling = Sampling(max_new_tokens=24, seed=3, stop_ids=(), **LIVELY)
    inner, rounds = engine._step, iter(range(99))

    def interrupted(*arguments, **named):
        done = inner(*arguments, **named)
        if next(rounds) == 3:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(engine, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask(engine, [1, 2, 3], sampling)
    assert ask(engine, [1, 2, 3], sampling) == plain([1, 2, 3], sampling)
    assert kept == [0, 2]


@pytest.mark.parametrize("name", ["ar", "dflash", "ddtree"])
def test_aborts_anywhere_leave_no_trace(name, monkeypatch):
    """Conversations and batches that end in the middle of some layer, of a prompt's pass or of a round's: 34 times, a hundred in all."""
    engine = engine_for(name, target())
    rng = random.Random(11)
    inner, left = attention.attend, [0]

    def aborting(*arguments):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return inner(*arguments)

    monkeypatch.setattr(attention, "attend", aborting)
    prompts = [rng.choices(range(31), k=rng.randrange(2, 30)) for _ in range(3)]
    sampling = Sampling(max_new_tokens=8, seed=1, stop_ids=(), **LIVELY)
    expected = [plain(prompt, sampling) for prompt in prompts]
    aborted = 0
    for trial in range(34):
        left[0] = rng.randrange(1, 40)
        prompt = rng.choice(prompts)
        with suppress(KeyboardInterrupt):
            if trial % 3:
                ask(engine, [*prompt, *rng.choices(range(31), k=trial % 5)], sampling)
            else:
                engine.generate_batch(prompts, sampling, batch_size=2)
        aborted += left[0] == 0
        left[0] = 0
        place = prompts.index(prompt)
        assert ask(engine, prompt, sampling) == expected[place]
    assert aborted > 17


def test_without_reuse_everything_is_read_again(kept):
    engine = engine_for("dflash", target())
    sampling = Sampling(max_new_tokens=8, stop_ids=())
    first = engine.generate([3, 4, 5], sampling)
    ask(engine, [3, 4, 5], sampling)
    assert engine.generate([3, 4, 5], sampling).token_ids == first.token_ids
    engine.generate_batch([[3, 4, 5], [1]], sampling)
    ask(engine, [3, 4, 5], sampling)
    assert kept == [0, 2, 0, 0, 0, 0]


def test_rows_are_kept_when_the_buffers_grow(kept):
    engine = engine_for("dflash", target())
    prompt = [7] * 40
    for length in (10, 60):
        sampling = Sampling(max_new_tokens=length, seed=1, stop_ids=(), **LIVELY)
        answer = ask(engine, prompt, sampling)
        assert answer == plain(prompt, sampling)
        prompt = [*prompt, *answer, 3]
    assert kept[1] > 40
