"""Part of a canvas in, logits of its rows out: one pass of the model with the rows before it from a cache."""

import torch
from torch import Tensor

from specmodels.kv import CacheMemory, ContextMemory, StaticKV
from specmodels.llada2 import Llada2, block_causal
from specrun.diffusion.canvas import Canvas

PREFIX = 512
"""Rows of the prompt that are read at once, about."""


def run(model: Llada2, canvas: Canvas, kv: StaticKV, start: int, stop: int, *, ahead: int = 0) -> Tensor:
    """Hidden rows `[Q, D]` of positions start to stop, whose keys and values go into the cache.

    A row sees all earlier blocks, its own, and `ahead` later ones as far as they are in the cache or among the rows.
    """
    rows, memory = _places(canvas, start, stop), _places(canvas, 0, stop)
    mask = block_causal(rows + ahead * canvas.block, memory, canvas.block)
    return _forward(model, canvas, rows, CacheMemory(kv, rows, mask))


def run_open(model: Llada2, canvas: Canvas, kv: StaticKV, start: int, stop: int) -> Tensor:
    """Hidden rows that see each other whatever their blocks, and all before them; the cache is read and not written."""
    rows = _places(canvas, start, stop)
    context = tuple(
        (key_BGTH[:, :, :start], value_BGTH[:, :, :start])
        for key_BGTH, value_BGTH in zip(kv.key_LBGTH, kv.value_LBGTH, strict=True)
    )
    mask = torch.ones(1, stop - start, stop, dtype=torch.bool, device=rows.device)
    return _forward(model, canvas, rows, ContextMemory(context, mask))


def read_prefix(model: Llada2, canvas: Canvas, kv: StaticKV, stop: int) -> None:
    """Bring the whole blocks before `stop` into the cache, a few at a time."""
    step = max(1, PREFIX // canvas.block) * canvas.block
    for start in range(0, stop, step):
        run(model, canvas, kv, start, min(start + step, stop))


def _places(canvas: Canvas, start: int, stop: int) -> Tensor:
    return torch.arange(start, stop, device=canvas.ids_T.device)[None]


def _forward(model: Llada2, canvas: Canvas, rows_BQ: Tensor, memory: CacheMemory | ContextMemory) -> Tensor:
    return model(canvas.ids_T[rows_BQ[0]][None], rows_BQ, memory)[0]
