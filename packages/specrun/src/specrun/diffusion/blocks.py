"""A canvas in, its answer decoded block by block out: masks become tokens, and tokens may still change inside a block.

A finished block never looks at later ones, so its keys and values are exact once they were computed from its last tokens.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from specmodels.kv import StaticKV
from specmodels.llada2 import Llada2
from specrun.diffusion.canvas import Canvas
from specrun.diffusion.change import change
from specrun.diffusion.config import Decoding
from specrun.diffusion.guess import Draw, Guess, guess
from specrun.diffusion.history import History
from specrun.diffusion.passes import read_prefix, run, run_open
from specrun.diffusion.stats import DiffusionStats


@torch.no_grad()
def decode_blocks(
    model: Llada2, canvas: Canvas, decoding: Decoding, draw: Draw, stats: DiffusionStats
) -> Iterator[int]:
    """Decode until an end or the budget; after every block give out up to where the canvas cannot change any more.

    The first thing that it gives out is the prompt's length, once the prompt is read.
    """
    length, block = len(canvas.ids_T), canvas.block
    first = canvas.prompt // block * block
    kv = model.new_kv(batch=1, capacity=length)
    read_prefix(model, canvas, kv, first)
    yield canvas.prompt
    for start in range(first, length, block):
        if canvas.ended():
            return
        stop = min(start + block, length)
        exact = _decode_block(model, canvas, kv, (start, stop), decoding, draw, stats)
        if not exact and (stop < length or decoding.reopened > 1):
            stats.draft_forwards += 1
            stats.settle_forwards += 1
            run(model, canvas, kv, start, stop)
        opened = max(first, stop - decoding.reopened * block)
        if opened < start:
            _edit_reopened(model, canvas, kv, (opened, stop), decoding, draw, stats)
        over = stop == length or canvas.ended()
        yield stop if over else max(canvas.prompt, stop - (decoding.reopened - 1) * block)


def _decode_block(
    model: Llada2,
    canvas: Canvas,
    kv: StaticKV,
    span: tuple[int, int],
    decoding: Decoding,
    draw: Draw,
    stats: DiffusionStats,
) -> bool:
    """Fill and edit one block; whether the cache holds its last tokens.

    Every pass fills a mask while there is one, so there are at most as many passes as masks, and the edit steps.
    """
    start, stop = span
    history, edit_steps = History(), 0
    while True:
        ids_Q, masked_Q = canvas.ids_T[start:stop], canvas.masked(start, stop)
        whole = not bool(masked_Q.any())
        if whole:
            if edit_steps == decoding.edit_steps:
                return False
            if history.seen(ids_Q):
                canvas.ids_T[start:stop] = history.best_since(ids_Q)
                return False
            edit_steps += 1
        found = guess(model.logits(run(model, canvas, kv, start, stop)), ids_Q, start, canvas.mask_id, draw)
        stats.draft_forwards += 1
        free_Q = canvas.free(start, stop)
        if whole:
            history.note(ids_Q, mean_loss(found, free_Q))
        filled_Q, edited_Q = change(
            found,
            ids_Q,
            masked_Q,
            free_Q,
            mask_threshold=decoding.mask_threshold,
            edit_threshold=decoding.edit_threshold,
            least=decoding.least,
        )
        edits = int(edited_Q.sum())
        stats.draft_edits += edits
        write(canvas, start, found, filled_Q | edited_Q)
        if whole and not edits:
            return True


def _edit_reopened(
    model: Llada2,
    canvas: Canvas,
    kv: StaticKV,
    span: tuple[int, int],
    decoding: Decoding,
    draw: Draw,
    stats: DiffusionStats,
) -> None:
    """Edit the last few blocks with full sight of each other, then bring the cache up to date if any changed."""
    start, stop = span
    before_Q, history = canvas.ids_T[start:stop].clone(), History()
    for _ in range(decoding.reopened_steps):
        ids_Q, free_Q = canvas.ids_T[start:stop], canvas.free(start, stop)
        if history.seen(ids_Q):
            canvas.ids_T[start:stop] = history.best_since(ids_Q)
            break
        hidden_QD = run_open(model, canvas, kv, start, stop)
        found = guess(model.logits(hidden_QD), ids_Q, start, canvas.mask_id, draw)
        stats.draft_forwards += 1
        history.note(ids_Q, mean_loss(found, free_Q))
        _, edited_Q = change(
            found,
            ids_Q,
            torch.zeros_like(free_Q),
            free_Q,
            mask_threshold=decoding.mask_threshold,
            edit_threshold=decoding.edit_threshold,
            least=decoding.least,
        )
        edits = int(edited_Q.sum())
        if not edits:
            break
        stats.draft_edits += edits
        write(canvas, start, found, edited_Q)
    if not torch.equal(canvas.ids_T[start:stop], before_Q):
        stats.draft_forwards += 1
        stats.settle_forwards += 1
        run(model, canvas, kv, start, stop)


def write(canvas: Canvas, start: int, found: Guess, chosen_Q: Tensor) -> None:
    """Let rows take their guess, with how sure it was."""
    span = slice(start, start + len(chosen_Q))
    canvas.ids_T[span] = torch.where(chosen_Q, found.token_Q, canvas.ids_T[span])
    canvas.sure_T[span] = torch.where(chosen_Q, found.sure_Q.float(), canvas.sure_T[span])


def mean_loss(found: Guess, free_Q: Tensor) -> float:
    """Mean negative log-probability of the tokens that stand in the answer."""
    return -float(found.log_held_Q[free_Q].mean())
