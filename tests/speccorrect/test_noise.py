"""The keyed noise: the same for everyone who asks, and otherwise without any pattern that a test of ours can find."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speccorrect import noise as noise_module
from speccorrect.noise import Stream, gumbel, gumbel_rows, noise_key, uniform

from reference.chi_square import distance

COUNT = 100_000
# statistics below are standard normal deviates under a fixed seed: a sound hash stays within this
BOUND = 4.5
INT64 = st.integers(-(2**63), 2**63 - 1)


def key(seed=1, request=0, position=0, stream=Stream.TARGET) -> torch.Tensor:
    return noise_key(*(torch.as_tensor(word) for word in (seed, request, position)), stream)


def mix(word: int) -> int:
    for shift, factor in ((16, 0x21F0AAAD), (15, 0xD35A2D97)):
        word = (word ^ word >> shift) * factor & 0xFFFFFFFF
    return word ^ word >> 15


def fold(state: int, words) -> int:
    for word in words:
        state = mix((state * 0x01000193 + word) & 0xFFFFFFFF)
    return state


@given(INT64, INT64, st.integers(0, 2**40), st.sampled_from(Stream), st.integers(0, 300_000))
def test_the_bits_equal_a_hash_in_python_integers(seed, request, position, stream, token):
    low, high = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    request_word, place = request & 0xFFFFFFFF, position & 0xFFFFFFFF
    first = fold(0x243F6A88 + stream, (low, high, request_word, place))
    second = fold(0x85A308D3 + stream, (place, request_word, high, low))
    word = mix(mix((token * 0x9E3779B9 + first) & 0xFFFFFFFF) ^ second)
    assert float(uniform(key(seed, request, position, stream), torch.tensor(token))) == (word + 0.5) / 2**32


def test_uniform_is_inside_the_open_interval():
    values = uniform(key(), torch.arange(COUNT))
    assert values.min() > 0
    assert values.max() < 1
    # the extreme words are never 0 or 1, nor their noise infinite
    ends = (torch.tensor([0.0, 2.0**32 - 1], dtype=torch.float64) + 0.5) * 2.0**-32
    assert (-torch.log(-torch.log(ends))).isfinite().all()


def test_any_subset_of_ids_in_any_order_gets_the_same_noise():
    whole = gumbel(key(5, 6, 7), torch.arange(1000))
    subset = torch.randperm(1000)[:60]
    assert torch.equal(gumbel(key(5, 6, 7), subset), whole[subset])


@pytest.mark.parametrize("tile", [1, 20, 45, 1000])
def test_rows_of_a_vocabulary_are_the_same_noise_in_any_tiles(monkeypatch, tile):
    monkeypatch.setattr(noise_module, "_TILE", tile)
    keys = key(position=torch.arange(5))
    expected = gumbel(keys[:, None], torch.arange(10))
    assert torch.equal(gumbel_rows(keys, 10, torch.float64), expected)
    assert torch.equal(gumbel_rows(keys, 10, torch.float32), expected.float())


def test_keys_broadcast_as_if_asked_one_by_one():
    keys = noise_key(torch.tensor([[3], [4]]), torch.tensor([[0], [9]]), torch.arange(5))
    for row, (seed, request) in enumerate(((3, 0), (4, 9))):
        for position in range(5):
            assert keys[row, position] == key(seed, request, position)


def test_distinct_tokens_never_share_a_value():
    """Equal noise would tie equal logits, and ties go to the lower id."""
    assert uniform(key(), torch.arange(200_000)).unique().numel() == 200_000


def test_keys_do_not_collide():
    seeds, requests, positions = torch.arange(20), torch.arange(20), torch.arange(100)
    keys = [
        noise_key(seeds[:, None, None], requests[:, None], positions, stream).flatten() for stream in Stream
    ]
    assert torch.cat(keys).unique().numel() == 4 * 20 * 20 * 100


@pytest.mark.parametrize("axis", ["token", "position", "request", "seed"])
def test_values_are_uniform_along_every_axis(axis):
    """Along one axis at a time, single values and neighbouring pairs fall evenly into cells."""
    index = torch.arange(COUNT)
    values = uniform(key(), index) if axis == "token" else uniform(key(**{axis: index}), torch.tensor(17))
    single = (values * 64).long()
    pairs = single[:-1] // 8 * 8 + single[1:] // 8
    for cells in (single, pairs):
        assert abs(distance(cells.tolist(), dict.fromkeys(range(64), 1 / 64))) < BOUND
    low_bits = (values * 2**32).long() % 64
    assert abs(distance(low_bits.tolist(), dict.fromkeys(range(64), 1 / 64))) < BOUND


NEIGHBOURS = [
    {"seed": 2},
    {"seed": 1 + 2**32},
    {"seed": -1},
    {"request": 1},
    {"position": 1},
    *({"stream": stream} for stream in Stream if stream is not Stream.TARGET),
]


@pytest.mark.parametrize("change", NEIGHBOURS, ids=str)
def test_neighbouring_keys_are_independent(change):
    ids = torch.arange(COUNT)
    one, two = (uniform(key(**words), ids) - 0.5 for words in ({}, change))
    correlation = (one * two).mean() / (one.std() * two.std())
    assert abs(correlation) * math.sqrt(COUNT) < BOUND
    shifted = (one[:-1] * two[1:]).mean() / (one.std() * two.std())
    assert abs(shifted) * math.sqrt(COUNT) < BOUND
    cells = ((one + 0.5) * 8).long() * 8 + ((two + 0.5) * 8).long()
    assert abs(distance(cells.tolist(), dict.fromkeys(range(64), 1 / 64))) < BOUND


def test_seed_request_and_position_do_not_trade_places():
    assert key(2, 3, 4) != key(3, 2, 4)
    assert key(2, 3, 4) != key(2, 4, 3)
    assert key(2, 3, 4) != key(4, 3, 2)
    assert key(0, 0, 1) != key(0, 1, 0)


def test_gumbel_has_its_mean_and_spread():
    noise = gumbel(key(), torch.arange(COUNT))
    deviation = math.pi / math.sqrt(6)
    assert abs(noise.mean().item() - 0.5772156649) < BOUND * deviation / math.sqrt(COUNT)
    assert abs(noise.std().item() / deviation - 1) < 0.02  # about five standard errors


@pytest.mark.parametrize("axis", ["position", "request", "seed"])
def test_the_largest_noisy_logit_follows_the_softmax(axis):
    logits = torch.tensor([1.0, 0.2, -0.5, 2.0, -3.0, 0.9], dtype=torch.float64)
    drawn = (logits + gumbel(key(**{axis: torch.arange(COUNT)})[:, None], torch.arange(6))).argmax(dim=-1)
    law = dict(enumerate(logits.softmax(dim=-1).tolist()))
    assert abs(distance(drawn.tolist(), law)) < BOUND
