"""Rotation and its kinds of frequencies; the parity tests compare the same with a public implementation."""

import math

import pytest
import torch

from specmodels.layers.rope import Rope, RopeConfig, inverse_frequencies, rotate


def test_the_default_turns_pairs_by_position_over_theta():
    rope = Rope(RopeConfig(theta=100.0), 4, 8)
    heads = torch.tensor([1.0, 10.0, 2.0, 20.0]).expand(1, 1, 1, 4)
    turned = rotate(heads, rope(torch.tensor([[3]])))[0, 0, 0]
    for pair, frequency in enumerate([1.0, 0.1]):
        a, b, angle = heads[0, 0, 0, pair].item(), heads[0, 0, 0, pair + 2].item(), 3 * frequency
        assert abs(turned[pair].item() - (a * math.cos(angle) - b * math.sin(angle))) < 1e-5
        assert abs(turned[pair + 2].item() - (b * math.cos(angle) + a * math.sin(angle))) < 1e-5


def test_scores_depend_on_distances_only():
    rope = Rope(RopeConfig(theta=10000.0), 16, 64).double()
    query, key = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64)

    def score(at: int, other: int) -> float:
        left = rotate(query, rope(torch.tensor([[at]])))
        return (left * rotate(key, rope(torch.tensor([[other]])))).sum().item()

    # the table is made of fp32 angles, rounded at about 64 x 6e-8
    assert abs(score(5, 2) - score(50, 47)) < 1e-4
    assert abs(score(5, 2) - score(5, 3)) > 1e-3


def test_linear_stretches_all_wavelengths():
    base, _ = inverse_frequencies(RopeConfig(theta=10000.0), 16)
    stretched, scale = inverse_frequencies(RopeConfig(theta=10000.0, kind="linear", factor=4.0), 16)
    torch.testing.assert_close(stretched, base / 4, atol=0, rtol=0)
    assert scale == 1.0


def test_llama3_keeps_short_waves_and_stretches_long_ones():
    config = RopeConfig(theta=10000.0, kind="llama3", factor=8.0, original_positions=64)
    base, _ = inverse_frequencies(RopeConfig(theta=10000.0), 32)
    scaled, _ = inverse_frequencies(config, 32)
    waves = 2 * math.pi / base
    assert torch.equal(scaled[waves < 64 / 4.0], base[waves < 64 / 4.0])
    assert torch.equal(scaled[waves > 64 / 1.0], base[waves > 64 / 1.0] / 8)
    middle = (waves >= 64 / 4.0) & (waves <= 64 / 1.0)
    assert middle.any()
    assert ((scaled[middle] <= base[middle]) & (scaled[middle] >= base[middle] / 8)).all()


def test_yarn_keeps_short_waves_stretches_long_ones_and_scales_the_heads():
    config = RopeConfig(theta=10000.0, kind="yarn", factor=4.0, original_positions=256)
    base, _ = inverse_frequencies(RopeConfig(theta=10000.0), 32)
    scaled, scale = inverse_frequencies(config, 32)
    assert scaled[0] == base[0]
    assert scaled[-1] == base[-1] / 4
    assert scale == pytest.approx(0.1 * math.log(4.0) + 1.0)
    explicit = RopeConfig(
        theta=10000.0, kind="yarn", factor=4.0, original_positions=256, attention_factor=1.5
    )
    assert inverse_frequencies(explicit, 32)[1] == 1.5
    assert config.reach(256) == 1024
    assert RopeConfig(theta=1.0).reach(256) == 256


def test_a_table_from_the_meta_device_equals_a_direct_one():
    config = RopeConfig(theta=10000.0, kind="yarn", factor=4.0, original_positions=16)
    with torch.device("meta"):
        later = Rope(config, 8, 32)
    later.place(device="cpu", dtype=torch.float32)
    at = torch.arange(32)[None]
    assert torch.equal(later(at).cos_BQH, Rope(config, 8, 32)(at).cos_BQH)
    assert torch.equal(later(at).sin_BQH, Rope(config, 8, 32)(at).sin_BQH)
