"""Counting of rounds by hand examples: cuts, bonus tokens, depths that were never reached."""

import pytest

from specrun.stats import Stats


def counted(*rounds, slots=4, rows=5):
    """Stats of rounds given as (kept, accepted)."""
    stats = Stats(tokens=1)
    for kept, accepted in rounds:
        stats.count_round(kept=kept, accepted=accepted, slots=slots, rows=rows)
    return stats


def test_the_bonus_counts_and_the_first_token_does_not():
    stats = counted((5, 4), (1, 0), (3, 2))
    assert (stats.rounds, stats.round_tokens, stats.tokens) == (3, 9, 10)
    assert stats.tokens_per_round == 3.0
    assert stats.verified_rows == 15


def test_acceptance_is_of_the_rounds_that_reached_a_depth():
    stats = counted((5, 4), (1, 0), (3, 2))
    assert stats.tried == [3, 2, 2, 1]
    assert stats.accepted == [2, 2, 1, 1]
    assert stats.acceptance_by_depth == [2 / 3, 1.0, 0.5, 1.0]


@pytest.mark.parametrize(("kept", "tried"), [(1, [1, 0, 0, 0]), (2, [1, 1, 0, 0]), (3, [1, 1, 1, 0])])
def test_a_cut_says_nothing_of_the_depths_behind_it(kept, tried):
    stats = counted((kept, 3))
    assert stats.tried == stats.accepted == tried
    assert stats.round_tokens == kept


def test_a_miss_that_was_not_cut_counts_as_tried():
    assert counted((2, 1)).tried == [1, 1, 0, 0]
    assert counted((2, 1)).accepted == [1, 0, 0, 0]


def test_plain_decoding_has_no_depths():
    stats = counted((1, 0), (1, 0), slots=0, rows=1)
    assert stats.acceptance_by_depth == []
    assert stats.tokens_per_round == 1.0


def test_nothing_divides_by_nothing():
    assert Stats().tokens_per_round == 0.0
    assert Stats().tokens_per_second == 0.0
    assert Stats().acceptance_by_depth == []


def test_sums_are_totals_over_totals():
    total = counted((5, 4), slots=4)
    total.prefill_seconds, total.stage_seconds = 1.0, {"draft": 2.0}
    other = counted((1, 0), (1, 0), slots=2, rows=3)
    other.prefill_seconds, other.stage_seconds = 0.5, {"draft": 1.0, "verify": 4.0}
    total.add(other)
    assert total.tokens_per_round == 7 / 3
    assert total.tried == [3, 1, 1, 1]
    assert total.accepted == [1, 1, 1, 1]
    assert total.verified_rows == 5 + 6
    assert (total.prefill_seconds, total.stage_seconds) == (1.5, {"draft": 3.0, "verify": 4.0})
