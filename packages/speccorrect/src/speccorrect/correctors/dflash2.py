"""DFlash 2's candidate selector (z-lab/dflash): the best 16 tokens of a slot, re-scored by the token before them.

score(p -> c) = logit(c) + <A[p] * W h, Z[c]> with codebooks A of predecessors and Z of successors, h the slot's hidden
row, * elementwise. The grouped convolutions of DFlash 2 belong to the drafter, not to this head.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speccorrect.lattice import Lattice, best_candidates, lattice, walk_block, walk_scores, walk_start
from speccorrect.products import Borrowed, Candidates, DraftBlock
from speccorrect.registry import CorrectorSpec
from speccorrect.source import HeadShape, HeadSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DFlash2Config:
    """Sizes of the selector."""

    shape: HeadShape
    rank: int  # width of the codebooks, at least 1
    top_k: int  # candidates per slot, 1 to the vocabulary


class DFlash2(nn.Module):
    """The candidate selector."""

    passes: int | None = None
    path_free_confidence = False

    def __init__(self, config: DFlash2Config) -> None:
        super().__init__()
        self.config = config
        self.support: int | None = config.top_k
        vocab, rank = config.shape.vocab_size, config.rank
        self.predecessor_VR = nn.Parameter(torch.empty(vocab, rank))
        self.successor_VR = nn.Parameter(torch.empty(vocab, rank))
        self.hidden_RD = nn.Parameter(torch.empty(rank, config.shape.hidden_size))

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Draw fresh weights. Successors are zero, so the scores are the drafter's own until training moves them."""
        self.predecessor_VR.normal_(0.0, 0.02, generator=generator)
        self.hidden_RD.normal_(0.0, 0.02, generator=generator)
        self.successor_VR.zero_()

    def prepare(self, block: DraftBlock, borrowed: Borrowed, candidates: Candidates) -> Lattice:
        """Score every pair of neighbouring candidates: K small products, after which a walk is table look-ups."""
        del borrowed
        candidates = best_candidates(candidates, self.config.top_k)
        ids_BKC = candidates.ids_BKC
        assert ids_BKC is not None
        slots = ids_BKC.shape[1]
        gate_BKR = F.linear(block.rows_BKD[:, :slots].to(self.hidden_RD.dtype), self.hidden_RD)
        successor_BKRC = self.successor_VR[ids_BKC].transpose(-1, -2)
        first_BR = self.predecessor_VR[block.anchor_B] * gate_BKR[:, 0]
        later_BKCR = self.predecessor_VR[ids_BKC[:, :-1]] * gate_BKR[:, 1:, None]
        base_BKC = candidates.base_BKC
        return lattice(
            candidates,
            base_BKC[:, 0] + (first_BR[:, None] @ successor_BKRC[:, 0]).squeeze(1).float(),
            base_BKC[:, 1:, None] + (later_BKCR @ successor_BKRC[:, 1:]).float(),
        )

    def start(self, prepared: Lattice) -> Tensor:
        return walk_start(prepared)

    def scores(self, prepared: Lattice, depth: int, state_BWS: Tensor) -> Tensor:
        return walk_scores(prepared, depth, state_BWS)

    def advance(self, prepared: Lattice, depth: int, choice_BW: Tensor, state_BWS: Tensor) -> Tensor:
        del prepared, depth, state_BWS
        return choice_BW[..., None]

    def block(self, prepared: Lattice, choice_BK: Tensor) -> Tensor:
        return walk_block(prepared, choice_BK)

    def confidence(self, prepared: Lattice, depth: int, state_BWS: Tensor) -> Tensor | None:
        return None


# The codebooks are stored bare; files that went through an embedding layer carry ".weight".
NAMES = {
    "predecessor_VR": (
        "candidate_selector.predecessor_codebook",
        "candidate_selector.predecessor_codebook.weight",
    ),
    "successor_VR": (
        "candidate_selector.successor_codebook",
        "candidate_selector.successor_codebook.weight",
    ),
    "hidden_RD": ("candidate_selector.hidden_projection.weight",),
}


def _claims(config: Mapping[str, Any], tensors: frozenset[str]) -> bool:
    """Whether a checkpoint has a selector, whole or in part."""
    return "selector_rank" in config or any(name.startswith("candidate_selector.") for name in tensors)


def _load(source: HeadSource) -> DFlash2:
    """Take the selector out of a checkpoint."""
    rank, top_k = source.take_positive("selector_rank", int), source.take_positive("selector_top_k", int)
    if top_k > source.shape.vocab_size:
        raise ValueError(
            f"config key 'selector_top_k': got {top_k}, expected at most {source.shape.vocab_size}"
        )
    module = DFlash2(DFlash2Config(shape=source.shape, rank=rank, top_k=top_k))
    source.fill(module, NAMES)
    return module


def _save(module: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Keys and tensors under their public names."""
    assert isinstance(module, DFlash2), type(module)
    tensors = {NAMES[ours][0]: tensor for ours, tensor in module.state_dict().items()}
    return {"selector_rank": module.config.rank, "selector_top_k": module.config.top_k}, tensors


def _new(shape: HeadShape) -> DFlash2:
    """An untrained selector of its authors' sizes, less where the target is small."""
    config = DFlash2Config(shape=shape, rank=min(256, shape.hidden_size), top_k=min(16, shape.vocab_size))
    module = DFlash2(config)
    module.reset(torch.Generator().manual_seed(0))
    return module


SPEC = CorrectorSpec(
    name="dflash2",
    title="DFlash 2",
    paper="https://github.com/z-lab/dflash",
    summary="a bilinear selector over each slot's 16 best tokens, given the token before and the hidden row",
    claims=_claims,
    load=_load,
    save=_save,
    new=_new,
)
