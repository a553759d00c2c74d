"""The target's law against one row at a time in plain Python."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speccorrect.law import History, LawPlan, LawSettings, draw, probabilities, shape_logits
from speccorrect.noise import noise_key

from reference import law as naive
from reference.chi_square import distance

CLOSE = 1e-12  # sums in double precision
ALL = LawPlan(filters=True, penalties=True, noise=True)
FILTERS = LawPlan(filters=True, penalties=False, noise=True)
ROWS, VOCAB, BATCH = 3, 12, 2


def settings(batch: int = 1, **values) -> LawSettings:
    """The same value for every row of the batch, or a list with one for each."""
    defaults = {
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition": 1.0,
        "presence": 0.0,
        "frequency": 0.0,
    }
    given_ = {}
    for name, value in (defaults | values).items():
        row = value if isinstance(value, list) else [value] * batch
        # in doubles, so that the twin sees the very same numbers
        given_[name + "_B"] = torch.tensor(row, dtype=torch.int64 if name == "top_k" else torch.float64)
    return LawSettings(**given_)


def row(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).view(1, 1, -1)


def kept(shaped: torch.Tensor) -> set[int]:
    return set((shaped.flatten() > -math.inf).nonzero().flatten().tolist())


FILTER_SETTINGS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 1.7]),
        "top_k": st.sampled_from([0, 1, 2, 5, 12, 50]),
        "top_p": st.sampled_from([1e-6, 0.3, 0.71, 0.95, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05, 0.33, 1.0]),
    }
)
PENALTIES = st.fixed_dictionaries(
    {
        "repetition": st.sampled_from([0.7, 1.0, 1.4]),
        "presence": st.sampled_from([-0.5, 0.0, 0.8]),
        "frequency": st.sampled_from([-0.2, 0.0, 0.3]),
    }
)


@given(st.lists(FILTER_SETTINGS, min_size=BATCH, max_size=BATCH), st.integers(0, 10_000), st.booleans())
def test_filters_keep_what_the_definition_keeps(rows, seed, coarse):
    logits = torch.randn(BATCH, ROWS, VOCAB, generator=torch.Generator().manual_seed(seed)).double() * 2
    if coarse:
        logits = logits.round()  # many ties
    given_ = settings(BATCH, **{name: [one[name] for one in rows] for name in rows[0]})
    shaped = shape_logits(logits, given_, FILTERS)
    law = probabilities(shaped, given_.temperature_B)
    for batch in range(BATCH):
        for place in range(ROWS):
            numbers = logits[batch, place].tolist()
            assert kept(shaped[batch, place]) == naive.survivors(numbers, **rows[batch])
            expected = torch.tensor(naive.law(numbers, **rows[batch]), dtype=torch.float64)
            torch.testing.assert_close(law[batch, place], expected, rtol=0, atol=CLOSE)
            assert shaped[batch, place].argmax() == logits[batch, place].argmax()
    # what stays is not changed
    assert ((shaped == logits) | (shaped == -math.inf)).all()


@given(PENALTIES, FILTER_SETTINGS, st.integers(0, 10_000))
def test_penalties_act_on_raw_logits_before_the_filters(penalties, filters, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(BATCH, ROWS, VOCAB, generator=generator).double() * 2
    prompt = torch.rand(BATCH, VOCAB, generator=generator) < 0.4
    counts = torch.randint(0, 3, (BATCH, ROWS, VOCAB), generator=generator)
    given_ = settings(BATCH, **penalties, **filters)
    shaped = shape_logits(logits, given_, ALL, History(prompt_BV=prompt, output_BNV=counts))
    for batch in range(BATCH):
        ids = set(prompt[batch].nonzero().flatten().tolist())
        for place in range(ROWS):
            expected = naive.penalised(
                logits[batch, place].tolist(), ids, counts[batch, place].tolist(), **penalties
            )
            alive = naive.survivors(expected, **filters)
            assert kept(shaped[batch, place]) == alive
            for token in alive:
                assert math.isclose(shaped[batch, place, token], expected[token], abs_tol=CLOSE)


def test_filters_act_one_after_the_other():
    # probabilities .4, .3, .2, .1; of the best two, .57 and .43
    logits = row([0.4, 0.3, 0.2, 0.1]).log()
    assert kept(shape_logits(logits, settings(top_p=0.5), FILTERS)) == {0, 1}
    assert kept(shape_logits(logits, settings(top_p=0.5, top_k=2), FILTERS)) == {0}
    assert kept(shape_logits(logits, settings(top_p=0.95, top_k=3), FILTERS)) == {0, 1, 2}
    # min-p is measured against the best token, which no filter removes
    assert kept(shape_logits(logits, settings(min_p=0.6, top_k=3), FILTERS)) == {0, 1}


def test_the_temperature_comes_before_the_filters():
    logits = row([0.4, 0.3, 0.2, 0.1]).log()
    assert kept(shape_logits(logits, settings(top_p=0.72, temperature=1.0), FILTERS)) == {0, 1, 2}
    assert kept(shape_logits(logits, settings(top_p=0.72, temperature=0.25), FILTERS)) == {0}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"top_k": 2}, {0, 1, 2, 3}),
        ({"top_k": 1}, {0}),
        ({"top_p": 0.5}, {0, 1, 2, 3}),
        ({"min_p": math.exp(-1)}, {0, 1, 2, 3}),
    ],
)
def test_equal_logits_share_one_fate(values, expected):
    assert kept(shape_logits(row([2.0, 1.0, 1.0, 1.0, 0.0, -1.0]), settings(**values), FILTERS)) == expected


def test_a_row_of_equal_logits_stays_whole():
    logits = torch.zeros(1, 1, 9)
    for values in ({"top_k": 1}, {"top_p": 0.01}, {"min_p": 1.0}):
        assert torch.equal(shape_logits(logits, settings(**values), FILTERS), logits)


def test_a_top_p_of_one_cuts_nothing_even_where_the_sum_rounds_to_one_early():
    logits = torch.linspace(0, -40, 50_000)[None, None]  # the tail's mass is below fp32's resolution
    assert torch.equal(shape_logits(logits, settings(top_k=0), FILTERS), logits)


def test_tokens_that_are_masked_already_stay_masked():
    logits = row([1.0, -math.inf, 0.5, -math.inf])
    for values in ({}, {"top_k": 3}, {"top_p": 0.99}, {"min_p": 0.1}, {"top_k": 4, "top_p": 1.0}):
        shaped = shape_logits(logits, settings(**values), FILTERS)
        assert kept(shaped) <= {0, 2}
        assert not probabilities(shaped, torch.ones(1)).isnan().any()


def test_every_row_of_a_batch_has_its_own_law():
    logits = torch.randn(3, 2, VOCAB, dtype=torch.float64)
    rows = [
        {"temperature": 0.0, "top_k": 3},
        {"temperature": 0.7, "top_p": 0.8},
        {"temperature": 1.2, "min_p": 0.2},
    ]
    names = {name for one in rows for name in one}
    plain = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    together = settings(3, **{name: [one.get(name, plain.get(name)) for one in rows] for name in names})
    shaped = shape_logits(logits, together, FILTERS)
    for index, one in enumerate(rows):
        alone = shape_logits(logits[index : index + 1], settings(**one), FILTERS)
        assert torch.equal(shaped[index : index + 1], alone)


def test_half_precision_is_widened_and_double_is_kept():
    off = LawPlan(filters=False, penalties=False, noise=False)
    for dtype, expected in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        assert shape_logits(torch.zeros(1, 1, 3, dtype=dtype), settings(), off).dtype == expected


def test_probabilities_at_temperature_zero_are_one_hot_at_the_first_best():
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0], [1.0, 3.0, 3.0, 2.0]])
    law = probabilities(logits, torch.tensor([0.0, 1.0]))
    assert law[0].tolist() == [0, 1, 0, 0]
    torch.testing.assert_close(law[1], logits[1].softmax(dim=-1))


def test_a_small_temperature_is_not_an_overflow():
    law = probabilities(torch.tensor([[30.0, 29.0, -50.0]]), torch.tensor([1e-4]))
    assert law.tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_the_draw_follows_the_law(temperature):
    count = 60_000
    logits = row([1.0, 0.1, -0.7, 1.8, -2.0, 0.9])
    given_ = settings(temperature=temperature, top_k=4)
    shaped = shape_logits(logits, given_, FILTERS)
    keys = noise_key(torch.tensor(3), torch.tensor(0), torch.arange(count))[None]
    drawn = draw(shaped.expand(1, count, -1), given_.temperature_B, keys, torch.arange(6))
    law = dict(enumerate(naive.law(logits.flatten().tolist(), temperature=temperature, top_k=4)))
    assert abs(distance(drawn.flatten().tolist(), law)) < 4.5


def test_the_draw_at_temperature_zero_is_the_best_token():
    logits = torch.randn(2, 5, 9)
    keys = noise_key(torch.tensor(3), torch.tensor(0), torch.arange(5)).expand(2, -1)
    assert torch.equal(draw(logits, torch.zeros(2), keys, torch.arange(9)), logits.argmax(dim=-1))


def test_the_draw_among_listed_ids_is_the_draw_of_the_whole_row():
    """Listing only what a filter left gives the same token: noise belongs to ids, not to columns."""
    logits = torch.randn(1, 40, 30)
    shaped = shape_logits(logits, settings(top_k=6), FILTERS)
    keys = noise_key(torch.tensor(8), torch.tensor(1), torch.arange(40))[None]
    whole = draw(shaped, torch.ones(1), keys, torch.arange(30))
    top, ids = shaped.topk(6, dim=-1)
    place = draw(top, torch.ones(1), keys, ids)
    assert torch.equal(ids.gather(-1, place[..., None]).squeeze(-1), whole)
