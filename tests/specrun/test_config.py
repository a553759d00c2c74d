"""Settings outside their range are refused with what was got and what is expected."""

import math

import pytest

from specrun import Sampling

REFUSED = [
    ({"max_new_tokens": -1}, "max new tokens: got -1"),
    ({"temperature": -0.1}, "temperature: got -0.1"),
    ({"temperature": math.nan}, "temperature: got nan"),
    ({"temperature": math.inf}, "temperature: got inf"),
    ({"top_k": -1}, "top-k: got -1"),
    ({"top_p": 0.0}, "top-p: got 0.0"),
    ({"top_p": 1.01}, "top-p: got 1.01"),
    ({"min_p": 1.5}, "min-p: got 1.5"),
    ({"repetition_penalty": 0.0}, "repetition penalty: got 0.0"),
    ({"presence_penalty": math.nan}, "presence penalty: got nan"),
    ({"frequency_penalty": math.inf}, "frequency penalty: got inf"),
    ({"seed": 2**63}, "seed: got 9223372036854775808"),
    ({"stop": ("a", "")}, "stop: "),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_values_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**settings)


@pytest.mark.parametrize("seed", [-(2**63), 2**63 - 1])
def test_every_64_bit_seed_is_one(seed):
    assert Sampling(seed=seed).seed == seed


def test_what_costs_time_is_noticed():
    plain = Sampling(top_k=0, top_p=1.0, min_p=0.0)
    assert (plain.filters, plain.penalties) == (False, False)
    for setting in ({"top_k": 1}, {"top_p": 0.9}, {"min_p": 0.1}):
        assert Sampling(**setting).filters
    for setting in ({"repetition_penalty": 1.1}, {"presence_penalty": -1.0}, {"frequency_penalty": 0.1}):
        assert Sampling(**setting).penalties
