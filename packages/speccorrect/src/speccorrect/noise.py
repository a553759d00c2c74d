"""Gumbel noise keyed by (seed, request, position, token id): a counter-based hash without state.

The same key gives the same noise whoever asks, in whichever order and for whichever subset of ids. Integer arithmetic
is exact, so CPU and CUDA agree on the bits; logarithms are taken in fp64, so what they may differ by is far below any
gap between two scores.
"""

from enum import IntEnum

import torch
from torch import Tensor

_FOLD = 0x01000193
_TILE = 1 << 17
"""Numbers of a tile of noise: half a megabyte as int32."""


class Stream(IntEnum):
    """Independent noise for independent draws under one key."""

    TARGET = 0  # the target's own draw
    DRAFT = 1  # drafted tokens that are tested by rejection
    TEST = 2  # the uniform of the rejection test
    RESIDUAL = 3  # the draw after a rejection, and the bonus


def gumbel(key: Tensor, ids: Tensor) -> Tensor:
    """Standard Gumbel noise in fp64 for token `ids`; `key` (from `noise_key`) broadcasts against them."""
    return uniform(key, ids).log_().neg_().log_().neg_()


def gumbel_rows(key_X: Tensor, vocab_size: int, dtype: torch.dtype) -> Tensor:
    """Noise `[X, V]` over a whole vocabulary, for every key a row. On a CPU, in tiles that stay in its cache."""
    ids = torch.arange(vocab_size, device=key_X.device)
    whole = key_X.device.type != "cpu" or torch.compiler.is_compiling()
    rows = key_X.shape[0] if whole else max(1, _TILE // vocab_size)
    return torch.cat([gumbel(part[:, None], ids).to(dtype) for part in key_X.split(rows)])


def uniform(key: Tensor, ids: Tensor) -> Tensor:
    """Uniform noise in fp64, strictly inside (0, 1), at a resolution of 2**-32."""
    first, second = key.to(torch.int32), (key >> 32).to(torch.int32)
    # this product in 64 bits: compilers take one of counted ids for an address, and those may not overflow
    spread = ((ids.to(torch.int64) * 0x9E3779B9) & 0xFFFFFFFF).to(torch.int32)
    word = _mix(_mix(spread + first) ^ second)
    # the sign bit flipped and 2**31 added: the word as an unsigned number
    return (word ^ _signed(1 << 31)).double().add_(2.0**31 + 0.5).mul_(2.0**-32)


def noise_key(seed: Tensor, request: Tensor, position: Tensor, stream: Stream = Stream.TARGET) -> Tensor:
    """An int64 key for every (seed, request, position); the three int64 tensors broadcast.

    Its low and its high word fold the same four words, in opposite order and from different starts.
    """
    seed, request, position = torch.broadcast_tensors(seed, request, position)
    words = torch.stack([seed, seed >> 32, request, position])
    both = torch.stack([words, words.flip(0)], dim=1).to(torch.int32)
    low, high = (_signed((start + stream) * _FOLD) for start in (0x243F6A88, 0x85A308D3))
    state = _mix(torch.stack([both[0, 0] + low, both[0, 1] + high]))
    for word in both[1:]:
        state = _mix(state * _FOLD + word)
    return (state[0].to(torch.int64) & 0xFFFFFFFF) | (state[1].to(torch.int64) << 32)


def _mix(word: Tensor) -> Tensor:
    """A bijection of 32-bit words with low bias (multiply and xor-shift), held in int32: products wrap around."""
    word = (word ^ (word >> 16).bitwise_and_(0xFFFF)).mul_(_signed(0x21F0AAAD))
    word = (word ^ (word >> 15).bitwise_and_(0x1FFFF)).mul_(_signed(0xD35A2D97))
    return word ^ (word >> 15).bitwise_and_(0x1FFFF)


def _signed(word: int) -> int:
    """The low 32 bits of an integer as int32 holds them."""
    return ((word + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
