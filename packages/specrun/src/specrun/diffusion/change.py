"""A guess in, the rows that take it out: masks to tokens and tokens to other tokens, all at once.

Letters: Q rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from specrun.diffusion.guess import Guess


class Change(NamedTuple):
    """Which rows take their guess."""

    filled_Q: Tensor
    edited_Q: Tensor


def change(
    guess: Guess,
    ids_Q: Tensor,
    masked_Q: Tensor,
    editable_Q: Tensor,
    *,
    mask_threshold: float,
    edit_threshold: float | None,
    least: int,
    most_edits: int | None = None,
) -> Change:
    """Masks whose guess is surer than a threshold, but the surest `least` in any case; tokens whose better one is."""
    hope_Q = guess.sure_Q.masked_fill(~masked_Q, -1.0)
    filled_Q = hope_Q > mask_threshold
    surest_Q = torch.zeros_like(masked_Q).index_fill(0, hope_Q.topk(min(least, len(hope_Q))).indices, True)
    filled_Q = torch.where(filled_Q.sum() < least, surest_Q & masked_Q, filled_Q)
    if edit_threshold is None:
        return Change(filled_Q, torch.zeros_like(masked_Q))
    edited_Q = editable_Q & ~masked_Q & (guess.token_Q != ids_Q) & (guess.sure_Q > edit_threshold)
    if most_edits is not None and most_edits < len(ids_Q):
        order = guess.sure_Q.masked_fill(~edited_Q, -1.0).topk(most_edits).indices
        edited_Q = edited_Q & torch.zeros_like(edited_Q).index_fill(0, order, True)
    return Change(filled_Q, edited_Q)
