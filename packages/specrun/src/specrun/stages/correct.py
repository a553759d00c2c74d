"""Base logits of a block to what a corrector needs for growth."""

from typing import TypeVar

from torch import Tensor

from speccorrect.candidates import select_candidates
from speccorrect.contract import Corrector, Prepared
from speccorrect.products import Borrowed, DraftBlock
from specmodels.dflash import DFlash
from specmodels.qwen3 import Qwen3

P = TypeVar("P", bound=Prepared)


def correct(
    block: DraftBlock,
    target: Qwen3,
    drafter: DFlash,
    corrector: Corrector[P],
    *,
    candidates: int | None,
    noise_BKV: Tensor | None = None,
) -> P:
    """Choose the candidates of every slot, by logits + `noise` if given, and let the corrector prepare them."""
    borrowed = Borrowed(embedding_VD=target.embedding, head_VD=target.head_VD)
    logits_BKV = drafter.logits(block.rows_BKD, target.head_VD)
    ids = drafter.draft_to_target_v
    if noise_BKV is not None and ids is not None:
        noise_BKV = noise_BKV[..., ids]
    chosen = select_candidates(logits_BKV, candidates, ids, noise_BKV)
    return corrector.prepare(block, borrowed, chosen)
