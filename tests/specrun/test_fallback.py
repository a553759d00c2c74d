"""The judge of rounds: what it loses on a hopeless drafter, how it takes up a good one, and that it does not waver."""

import itertools
import random

import pytest

from specrun.fallback import PAUSE, RETURN, SHARE, STAKE, TRIAL, Fallback

PLAIN, ROUND = 1.0, 4.0


def run(judge, yields, rounds, catching_up=3.0):
    """Seconds and tokens of so many rounds; `yields(round)` are the tokens of a drafting one."""
    seconds = tokens = 0.0
    drafted = []
    for number in range(rounds):
        if judge.drafts(lambda: catching_up):
            if drafted and not drafted[-1]:
                seconds += catching_up
            found = yields(number)
            judge.drafted(found, ROUND, PLAIN)
            seconds, tokens = seconds + ROUND, tokens + found
            drafted.append(True)
        else:
            judge.decoded(PLAIN)
            seconds, tokens = seconds + PLAIN, tokens + 1
            drafted.append(False)
    return seconds, tokens, drafted


def judge(tokens):
    return Fallback(tokens=tokens, seconds=ROUND, plain=PLAIN)


def test_the_first_estimate_decides_how_it_begins():
    assert judge(4.1).drafting
    assert not judge(3.9).drafting
    assert judge(6.0).gain == pytest.approx(1.5)


def test_a_hopeless_drafter_costs_little_more_than_its_share():
    seconds, tokens, drafted = run(judge(1.0), lambda _: 1, 20_000)
    assert any(drafted), "it never tried again"
    assert seconds - tokens * PLAIN <= STAKE + SHARE * tokens * PLAIN


def test_a_promise_that_is_not_kept_is_given_up_within_a_few_rounds():
    seconds, tokens, drafted = run(judge(6.0), lambda _: 1, 400)
    assert drafted.index(False) <= 8
    assert seconds - tokens * PLAIN <= 8 * (ROUND - 1) + SHARE * 400 + STAKE


def test_text_that_becomes_easy_is_taken_up_and_hard_text_given_up_again():
    one = judge(1.0)
    _, _, hard = run(one, lambda _: 1, 3000)
    assert not one.drafting
    _, _, easy = run(one, lambda _: 8, 3000)
    assert one.drafting
    assert sum(easy) > 2000
    run(one, lambda _: 1, 50)
    assert not one.drafting
    assert sum(hard) < 0.02 * 3000


def test_a_stream_of_hard_requests_costs_little_more_than_its_share_too():
    one, seconds, tokens = judge(3.9), 0.0, 0.0
    for _ in range(300):
        one.begin()
        more = run(one, lambda _: 1, 60, catching_up=0.0)
        seconds, tokens = seconds + more[0], tokens + more[1]
    assert seconds - tokens * PLAIN <= STAKE + SHARE * tokens * PLAIN + 1


def test_easy_requests_pay_for_trials_of_those_that_follow():
    one, drafted = judge(3.9), {1: 0, 8: 0}
    for number in range(40):
        hard = 1 if number % 2 else 8
        one.begin()
        drafted[hard] += sum(run(one, lambda _, hard=hard: hard, 40, catching_up=0.0)[2])
    assert drafted[8] > 0.9 * 20 * 40
    assert drafted[1] < 0.3 * 20 * 40


def test_a_trial_that_failed_is_not_repeated_at_once():
    one = judge(1.0)
    one._credit = 100.0
    _, _, drafted = run(one, lambda _: 1, 200, catching_up=0.0)
    starts = [place for place, now in enumerate(drafted) if now and not (place and drafted[place - 1])]
    assert starts[0] == 0
    assert starts[1] >= PAUSE
    assert starts[2] - starts[1] >= 2 * PAUSE


def test_near_equality_it_does_not_waver():
    rng = random.Random(3)
    one = judge(4.0)
    _, _, drafted = run(one, lambda _: rng.choice((2, 4, 6)), 5000)
    changes = sum(before != after for before, after in itertools.pairwise(drafted))
    assert changes < 0.02 * 5000


@pytest.mark.parametrize(("tokens", "returns"), [(ROUND * RETURN * 1.1, True), (ROUND * 1.02, False)])
def test_a_trial_returns_only_for_a_margin(tokens, returns):
    one = judge(3.9)
    one._credit = 10.0
    assert one.drafts(lambda: 0.0)
    for _ in range(TRIAL):
        one.drafted(tokens, ROUND, PLAIN)
    assert one.drafting == returns


def test_a_dear_catching_up_waits_for_credit():
    one = judge(3.9)
    one._credit = 1.0
    assert not one.drafts(lambda: 50.0)
    assert one.drafts(lambda: 0.5)
    assert one._credit == 0.5
