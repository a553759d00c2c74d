"""Gumbel noise keyed by (seed, request, position, token id): a counter-based hash without state.

The same key gives the same noise whoever asks, in whichever order and for whichever subset of ids. Integer arithmetic
is exact, so CPU and CUDA agree on the bits; logarithms are taken in fp64, so what they may differ by is far below any
gap between two scores.
"""

from enum import IntEnum

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF


class Stream(IntEnum):
    """Independent noise for independent draws under one key."""

    TARGET = 0  # the target's own draw
    DRAFT = 1  # drafted tokens that are tested by rejection
    TEST = 2  # the uniform of the rejection test
    RESIDUAL = 3  # the draw after a rejection, and the bonus


def gumbel(key: Tensor, ids: Tensor) -> Tensor:
    """Standard Gumbel noise in fp64 for token `ids`; `key` (from `noise_key`) broadcasts against them."""
    return -torch.log(-torch.log(uniform(key, ids)))


def uniform(key: Tensor, ids: Tensor) -> Tensor:
    """Uniform noise in fp64, strictly inside (0, 1), at a resolution of 2**-32."""
    first, second = key & _WORD, (key >> 32) & _WORD
    return (_mix(_mix((ids * 0x9E3779B9 + first) & _WORD) ^ second).double() + 0.5) * 2.0**-32


def noise_key(seed: Tensor, request: Tensor, position: Tensor, stream: Stream = Stream.TARGET) -> Tensor:
    """An int64 key for every (seed, request, position); the three int64 tensors broadcast."""
    low = _fold(
        0x243F6A88 + int(stream), seed & _WORD, (seed >> 32) & _WORD, request & _WORD, position & _WORD
    )
    high = _fold(
        0x85A308D3 + int(stream), position & _WORD, request & _WORD, (seed >> 32) & _WORD, seed & _WORD
    )
    return low | (high << 32)


def _fold(start: int, *words: Tensor) -> Tensor:
    state = words[0].new_full((), start)
    for word in words:
        state = _mix((state * 0x01000193 + word) & _WORD)
    return state


def _mix(word: Tensor) -> Tensor:
    """A bijection of 32-bit words with low bias (multiply and xor-shift), held in int64.

    The products may wrap around in int64; their low 32 bits, all that is kept, are right all the same.
    """
    word = word ^ (word >> 16)
    word = (word * 0x21F0AAAD) & _WORD
    word = word ^ (word >> 15)
    word = (word * 0xD35A2D97) & _WORD
    return word ^ (word >> 15)
