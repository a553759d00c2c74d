"""Where answers part, by hand; margins against plain decoding without cache; p-values against a known table."""

import math

import pytest
import torch

from specrun import Sampling
from specrun.compare import parting, places_in_law, rounding, uniform_p_value

from doubles.engines import engine_for, small_target
from reference.plain import continuation, next_law

PROMPT = [3, 1, 4, 1, 5]
LAWS = [{}, {"temperature": 0.8}, {"temperature": 1.0, "frequency_penalty": 0.5}]


@pytest.fixture(scope="module")
def plain():
    return engine_for("ar", small_target())


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_margin_is_that_of_the_token_that_won(plain, law):
    sampling = Sampling(max_new_tokens=9, seed=6, **law)
    expected = continuation(plain.parts.target, PROMPT, sampling, length=9)
    margins = []
    for place in (1, 4, 8):
        others = []
        for token in range(31):
            got = [*expected.tokens[:place], token, *expected.tokens[place + 1 :]]
            found = parting(plain, PROMPT, expected.tokens, got, sampling)
            assert (found is None) == (token == expected.tokens[place])
            if found is not None:
                assert (found.place, found.expected, found.got) == (place, expected.tokens[place], token)
                others.append(found.margin)
        margins.append(min(others))
    torch.testing.assert_close(margins, [expected.margins[place] for place in (1, 4, 8)], rtol=0, atol=1e-6)


def test_ends_and_first_tokens_have_no_margin(plain):
    sampling = Sampling(max_new_tokens=4)
    for expected, got, place in [([1, 2], [1], 1), ([1], [1, 2], 1), ([1, 2], [3, 2], 0)]:
        found = parting(plain, PROMPT, expected, got, sampling)
        assert (found.place, found.margin) == (place, math.inf)


def test_rounding_is_that_of_the_dtype():
    double = rounding(engine_for("ar", small_target()), PROMPT, tokens=12)
    single = rounding(engine_for("ar", small_target(dtype=torch.float32)), PROMPT, tokens=12)
    assert 0 < double < 1e-12
    assert 1e-9 < single < 1e-4


def test_places_are_masses_of_more_probable_tokens(plain):
    """By the definition, one answer at a time: somewhere within the token's own mass, behind all greater ones."""
    answers = [[7, 2], [0, 30], [11, 4]]
    places = places_in_law(plain, PROMPT, answers, 0.7).view(3, 2).tolist()
    for answer, pair in zip(answers, places, strict=True):
        for depth, place in enumerate(pair):
            law = next_law(plain.parts.target, PROMPT, answer[:depth], Sampling(temperature=0.7))
            own = law[answer[depth]]
            above = sum(share for share in law if share > own)
            assert above - 1e-6 <= place <= above + own + 1e-6


def test_p_values():
    # ten of sixteen cells are 5 off their 10: distance 25; tables give 24.996 for 5 % and 15 degrees of freedom
    counts = [15] * 5 + [5] * 5 + [10] * 6
    places = [(cell + 0.5) / 16 for cell, count in enumerate(counts) for _ in range(count)]
    assert uniform_p_value(torch.tensor(places)) == pytest.approx(0.05, abs=1e-4)
    assert uniform_p_value(torch.tensor([1.0] * 160)) < 1e-100


@pytest.mark.parametrize(("temperature", "passes"), [(0.8, True), (0.6, False)])
def test_samples_of_a_law_pass_and_those_of_another_do_not(plain, temperature, passes):
    sampling = Sampling(max_new_tokens=2, temperature=0.8, seed=1, stop_ids=())
    answers = [answer.token_ids for answer in plain.generate_batch([PROMPT] * 300, sampling)]
    assert (uniform_p_value(places_in_law(plain, PROMPT, answers, temperature)) > 1e-3) == passes
