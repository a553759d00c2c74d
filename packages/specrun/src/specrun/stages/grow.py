"""A corrector's scores to the rows that the target will verify: a chain or a tree."""

from typing import TypeVar

import torch
from torch import Tensor

from speccorrect.accept import Keys
from speccorrect.contract import Corrector, Prepared
from speccorrect.couple import Coupling
from speccorrect.grow import TreeShape, grow_chain, grow_tree
from speccorrect.noise import Stream, gumbel
from speccorrect.products import Candidates
from speccorrect.tree import chain_tree
from specrun.products import Grown

P = TypeVar("P", bound=Prepared)


def grow(
    corrector: Corrector[P],
    prepared: P,
    anchor_B: Tensor,
    *,
    slots: int,
    shape: TreeShape | None,
    noise_BKC: Tensor | None,
    coupling: Coupling | None,
    judged: bool = False,
) -> Grown:
    """Grow a tree of the given shape, or a chain where there is none.

    `noise` is what a chain is drawn with, and what a tree is coupled to. A chain that is `judged` carries its head's
    confidence.
    """
    if shape is not None:
        return Grown(grow_tree(corrector, prepared, anchor_B, slots, shape, noise_BKC, coupling), None)
    proposal = grow_chain(corrector, prepared, slots, noise_BKC, judged=judged)
    return Grown(chain_tree(anchor_B, proposal), proposal)


def draft_noise(candidates: Candidates, keys: Keys, temperature_B: Tensor) -> Tensor:
    """Temperature times Gumbel noise `[B, K, C]` for a sampled draft, from a stream that the target never reads."""
    slots, count = candidates.base_BKC.shape[1:]
    offset = torch.arange(1, slots + 1, device=temperature_B.device)
    ids = candidates.ids_BKC
    if ids is None:
        ids = torch.arange(count, device=temperature_B.device)
    return gumbel(keys.at(offset, Stream.DRAFT)[..., None], ids) * temperature_B[:, None, None]
