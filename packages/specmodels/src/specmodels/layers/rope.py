"""Rotary position embedding: plain, linear, Llama-3 and YaRN frequencies.

In: positions of rows. Out: the rotated heads. It knows nothing of caches or masks.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Frequencies of the rotation; the names follow Hugging Face's `rope_parameters`."""

    theta: float  # base of the geometric series of wavelengths
    kind: Literal["default", "linear", "llama3", "yarn"] = "default"
    factor: float = 1.0  # how many times longer than the training context
    original_positions: int = 0  # training context in tokens; needed by llama3 and yarn
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float | None = None  # yarn; None derives it from `factor` (and the mscales)
    mscale: float | None = None  # yarn
    mscale_all_dim: float | None = None  # yarn
    truncate: bool = True  # yarn: round the correction range to whole dimensions

    def reach(self, positions: int) -> int:
        """Longest sequence, when the file says `positions`: YaRN files often still state the training context."""
        return (
            max(positions, int(self.original_positions * self.factor)) if self.kind == "yarn" else positions
        )


class Rotation(NamedTuple):
    """Cosines and sines of some rows; the sines of the first half of a head are negated."""

    cos_BQH: Tensor
    sin_BQH: Tensor


class Rope(nn.Module):
    """A table of rotations for `positions` rows, gathered by absolute position."""

    cos_TH: Tensor
    sin_TH: Tensor

    def __init__(self, config: RopeConfig, head_dim: int, positions: int) -> None:
        super().__init__()
        self.config, self.head_dim, self.positions = config, head_dim, positions
        self.register_buffer("cos_TH", torch.empty(positions, head_dim), persistent=False)
        self.register_buffer("sin_TH", torch.empty(positions, head_dim), persistent=False)
        if not self.cos_TH.is_meta:
            self.fill()

    def place(self, *, device: torch.device | str, dtype: torch.dtype) -> None:
        """Give a table that was built on the meta device its memory and values."""
        shape = (self.positions, self.head_dim)
        self.cos_TH = torch.empty(shape, device=device, dtype=dtype)
        self.sin_TH = torch.empty(shape, device=device, dtype=dtype)
        self.fill()

    def fill(self) -> None:
        """Compute the table into the memory it has."""
        device, dtype = self.cos_TH.device, self.cos_TH.dtype
        frequencies, scale = inverse_frequencies(self.config, self.head_dim)
        # fp32 angles, as in the reference implementations: the models were trained with their rounding
        angles = torch.arange(self.positions, dtype=torch.float32)[:, None] * frequencies[None]
        angles = torch.cat([angles, angles], dim=-1)
        self.cos_TH.copy_((angles.cos() * scale).to(device=device, dtype=dtype))
        sines = angles.sin() * scale
        # a rotated pair is (a cos - b sin, b cos + a sin): the sign stands in the table, so that no row pays for it
        sines[:, : self.head_dim // 2].neg_()
        self.sin_TH.copy_(sines.to(device=device, dtype=dtype))

    def forward(self, positions_BQ: Tensor) -> Rotation:
        return Rotation(self.cos_TH[positions_BQ], self.sin_TH[positions_BQ])


def rotate(heads_BAQH: Tensor, rotation: Rotation) -> Tensor:
    """Rotate pairs `(i, i + H/2)` of every head by the angle of its row.

    A rotation narrower than the head turns its first entries, in pairs of their own, and lets the others pass.
    """
    width = rotation.cos_BQH.shape[-1]
    if width < heads_BAQH.shape[-1]:
        return torch.cat([rotate(heads_BAQH[..., :width], rotation), heads_BAQH[..., width:]], dim=-1)
    swapped = heads_BAQH.roll(heads_BAQH.shape[-1] // 2, dims=-1)
    # not addcmul: product and sum rounded apart are the bits of the implementations that trained the weights
    return heads_BAQH * rotation.cos_BQH[:, None] + swapped * rotation.sin_BQH[:, None]


def inverse_frequencies(config: RopeConfig, head_dim: int) -> tuple[Tensor, float]:
    """Angular frequencies `[H/2]` in fp32 and the factor on cosines and sines."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    base = 1.0 / (config.theta**exponents)
    if config.kind == "linear":
        return base / config.factor, 1.0
    if config.kind == "llama3":
        return _llama3(config, base), 1.0
    if config.kind == "yarn":
        return _yarn(config, base, head_dim), _yarn_scale(config)
    return base, 1.0


def _llama3(config: RopeConfig, base: Tensor) -> Tensor:
    wavelength = 2 * math.pi / base
    longest = config.original_positions / config.low_freq_factor
    shortest = config.original_positions / config.high_freq_factor
    blend = (config.original_positions / wavelength - config.low_freq_factor) / (
        config.high_freq_factor - config.low_freq_factor
    )
    smooth = (1 - blend) * base / config.factor + blend * base
    scaled = torch.where(wavelength > longest, base / config.factor, base)
    medium = (wavelength <= longest) & (wavelength >= shortest)
    return torch.where(medium, smooth, scaled)


def _yarn(config: RopeConfig, base: Tensor, head_dim: int) -> Tensor:
    def dimension(rotations: float) -> float:
        turns = config.original_positions / (rotations * 2 * math.pi)
        return head_dim * math.log(turns) / (2 * math.log(config.theta))

    low, high = dimension(config.beta_fast), dimension(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    span = max(high - low, 0.001)
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / span).clamp(0, 1)
    return base / config.factor * ramp + base * (1 - ramp)


def _yarn_scale(config: RopeConfig) -> float:
    if config.attention_factor is not None:
        return config.attention_factor

    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(config.factor) + 1.0 if config.factor > 1 else 1.0

    if config.mscale and config.mscale_all_dim:
        return magnitude(config.mscale) / magnitude(config.mscale_all_dim)
    return magnitude(1.0)
