"""Base logits of a block to what a corrector needs for growth."""

from typing import TypeVar

from speccorrect.candidates import select_candidates
from speccorrect.contract import Corrector, Prepared
from speccorrect.products import Borrowed, DraftBlock
from specmodels.dflash import DFlash
from specmodels.qwen3 import Qwen3

P = TypeVar("P", bound=Prepared)


def correct(
    block: DraftBlock, target: Qwen3, drafter: DFlash, corrector: Corrector[P], *, candidates: int | None
) -> P:
    """Choose the candidates of every slot and let the corrector prepare them."""
    borrowed = Borrowed(embedding_VD=target.embedding, head_VD=target.head_VD)
    logits_BKV = drafter.logits(block.rows_BKD, target.head_VD)
    chosen = select_candidates(logits_BKV, candidates, drafter.draft_to_target_v)
    return corrector.prepare(block, borrowed, chosen)
