"""From base logits to the candidates of every slot."""

import torch
from torch import Tensor

from speccorrect.products import Candidates


def select_candidates(logits_BKV: Tensor, count: int | None) -> Candidates:
    """The `count` most probable tokens per slot, or the whole vocabulary for None; one pass over the logits."""
    logits = logits_BKV.float()
    lse = torch.logsumexp(logits, dim=-1)
    if count is None or count >= logits.shape[-1]:
        return Candidates(ids_BKC=None, base_BKC=logits, lse_BK=lse)
    base, ids = logits.topk(count, dim=-1)
    return Candidates(ids_BKC=ids, base_BKC=base, lse_BK=lse)
