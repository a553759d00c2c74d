"""A canvas with a complete draft in, its revision out, pass by pass over the whole answer."""

import math
from collections.abc import Iterator

import torch

from specmodels.llada2 import Llada2
from specrun.diffusion.blocks import mean_loss, write
from specrun.diffusion.canvas import Canvas
from specrun.diffusion.change import change
from specrun.diffusion.config import Refinement
from specrun.diffusion.guess import Draw, guess
from specrun.diffusion.history import History
from specrun.diffusion.passes import read_prefix, run
from specrun.diffusion.stats import DiffusionStats


@torch.no_grad()
def refine(
    model: Llada2, canvas: Canvas, refinement: Refinement, draw: Draw, stats: DiffusionStats
) -> Iterator[int]:
    """Revise until nothing changes, a state comes back, or the steps are used up; gives out the changes of each pass.

    Whatever is still masked is found too, evenly over the steps, so that none is left at the end.
    """
    if refinement.steps == 0 or canvas.budget == 0:
        return
    last = _close(canvas, open_tail=refinement.open_tail)
    block = canvas.block
    stop = min(-(-last // block) * block, len(canvas.ids_T))
    _remask(canvas, last, refinement.remask)
    ahead = stop // block + 1 if refinement.ahead is None else refinement.ahead
    # a prompt that looks ahead depends on the answer, through however many blocks; else its whole blocks are read once
    start = canvas.prompt // block * block if ahead == 0 else 0
    kv = model.new_kv(batch=1, capacity=stop)
    read_prefix(model, canvas, kv, start)
    editable_Q = canvas.free(start, stop) & (torch.arange(start, stop, device=canvas.ids_T.device) < last)
    history = History()
    for step in range(refinement.steps):
        ids_Q, masked_Q = canvas.ids_T[start:stop], canvas.masked(start, stop)
        masks = int(masked_Q.sum())
        if not masks and history.seen(ids_Q):
            canvas.ids_T[start:stop] = history.best_since(ids_Q)
            return
        hidden_QD = run(model, canvas, kv, start, stop, ahead=ahead)
        found = guess(model.logits(hidden_QD), ids_Q, start, canvas.mask_id, draw)
        stats.refine_forwards += 1
        if not masks:
            history.note(ids_Q, mean_loss(found, editable_Q))
        filled_Q, edited_Q = change(
            found,
            ids_Q,
            masked_Q,
            editable_Q,
            mask_threshold=refinement.edit_threshold,
            edit_threshold=refinement.edit_threshold,
            least=max(1, math.ceil(masks / (refinement.steps - step))),
            most_edits=refinement.most_edits,
        )
        changed_Q = filled_Q | edited_Q
        changes = int(changed_Q.sum())
        stats.edits_per_step.append(changes)
        if not changes:
            return
        write(canvas, start, found, changed_Q)
        yield changes


def _close(canvas: Canvas, *, open_tail: bool) -> int:
    """Fill up behind the first end of the draft; returns where the part that may change ends."""
    answer = canvas.answer()
    end = canvas.prompt + len(answer)
    if answer and answer[-1] in canvas.end_ids:
        canvas.ids_T[end:] = answer[-1]
        return len(canvas.ids_T) if open_tail else end
    return len(canvas.ids_T)


def _remask(canvas: Canvas, last: int, share: float) -> None:
    """Mask the least sure share of the draft again."""
    count = round(share * (last - canvas.prompt))
    if count:
        least = canvas.sure_T[canvas.prompt : last].topk(count, largest=False).indices
        canvas.ids_T[canvas.prompt + least] = canvas.mask_id
