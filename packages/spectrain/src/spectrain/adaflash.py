"""A target, a drafter with a head of lengths, and packed answers go in; AdaFlash's losses of both come out.

The head reads the drafter's rows without a gradient to them, so the two learn side by side. For the drafter as it is,
the head alone learns.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from specmodels.qwen3 import Qwen3
from spectrain.anchors import anchor_candidates, sample_anchors
from spectrain.data import Batch
from spectrain.heads import Pair
from spectrain.loop import Loss
from spectrain.objectives.adaflash import CLIP, adaflash_terms, length_loss
from spectrain.objectives.dflash import accepted
from spectrain.taught import Taught, teach


def accepted_lengths(taught: Taught) -> tuple[Tensor, Tensor]:
    """Drafts of every block `[M]` that the text accepts, and where that is known: the text went on far enough to tell.

    The drafter proposes its best token at every slot. The text is the target's own at whatever temperature it was drawn,
    so this is what decoding under that noise would have accepted.
    """
    right_MK = (taught.base_MKV.argmax(dim=-1) == taught.label_MK) & taught.trained_MK
    accepted_M = accepted(right_MK)
    seen_M = taught.trained_MK.sum(dim=1)
    return accepted_M, (seen_M > 0) & (taught.trained_MK.all(dim=1) | (accepted_M < seen_M))


def adaflash_objective(
    target: Qwen3, pair: Pair, *, anchors: int, gamma: float, clip: float = CLIP, drafter_learns: bool = True
) -> Callable[[Batch, torch.Generator], Loss]:
    """The objective of a run; the pair's head is a `LengthHead`."""

    def objective(batch: Batch, generator: torch.Generator) -> Loss:
        places = sample_anchors(anchor_candidates(batch), anchors, generator)
        with torch.set_grad_enabled(drafter_learns):
            taught = teach(target, pair.drafter, batch, places, distribution=drafter_learns)
        accepted_M, known_M = accepted_lengths(taught)
        logit_M = pair.head(taught.block.hidden_BRD)
        length = length_loss(logit_M, accepted_M, known_M, taught.block.slots + 1)
        metrics = {"length": length.detach(), "accepted": accepted_M.float().mean()}
        if not drafter_learns:
            return Loss(length, metrics)
        assert taught.target_MKV is not None, "asked for above"
        terms = adaflash_terms(
            taught.base_MKV.float().log_softmax(dim=-1),
            taught.target_MKV.float().log_softmax(dim=-1),
            taught.weights(gamma),
            clip,
        )
        return Loss(terms.mixed() + length, metrics | {"hard": terms.hard.detach(), "clipped": terms.clipped})

    return objective
