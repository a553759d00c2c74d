"""From base logits to the candidates of every slot."""

import torch
from torch import Tensor

from speccorrect.products import Candidates


def select_candidates(
    logits_BKV: Tensor, count: int | None, token_ids_V: Tensor | None = None, noise_BKV: Tensor | None = None
) -> Candidates:
    """The `count` most probable tokens per slot, or the whole vocabulary for None.

    `token_ids_V` names the target's id of every column where the drafter's vocabulary is a reduced one. With `noise`
    (temperature times the target's own Gumbel noise, over those columns) the best of logits + noise are chosen instead:
    where the law is flat, few of them hold what many of the others would. Bases stay the plain logits.
    """
    logits = logits_BKV.float()
    lse = torch.logsumexp(logits, dim=-1)
    if count is None or count >= logits.shape[-1]:
        ids = None if token_ids_V is None else token_ids_V.expand_as(logits)
        return Candidates(ids_BKC=ids, base_BKC=logits, lse_BK=lse)
    ranked = logits if noise_BKV is None else logits + noise_BKV.to(logits.dtype)
    ids = ranked.topk(count, dim=-1).indices
    base = logits.gather(-1, ids)
    return Candidates(ids_BKC=ids if token_ids_V is None else token_ids_V[ids], base_BKC=base, lse_BK=lse)
