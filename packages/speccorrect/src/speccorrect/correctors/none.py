"""No correction: plain DFlash, whose slots are independent given the context (arXiv 2602.06036).

As a tree this is DDTree (arXiv 2604.12989): nodes ranked by the product of the slots' marginals.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from speccorrect.products import Borrowed, Candidates, DraftBlock
from speccorrect.registry import CorrectorSpec
from speccorrect.source import HeadSource


@dataclass(frozen=True, slots=True)
class Marginals:
    """Log-probabilities of the slots, normalised over the whole vocabulary."""

    candidates: Candidates
    scores_BKC: Tensor


class NoCorrector(nn.Module):
    """The corrector that changes nothing; its state is empty."""

    support: int | None = None
    passes: int | None = 1
    path_free_confidence = True

    def prepare(self, block: DraftBlock, borrowed: Borrowed, candidates: Candidates) -> Marginals:
        del block, borrowed
        return Marginals(candidates, candidates.base_BKC - candidates.lse_BK[..., None])

    def start(self, prepared: Marginals) -> Tensor:
        return prepared.scores_BKC.new_empty(prepared.scores_BKC.shape[0], 1, 0)

    def scores(self, prepared: Marginals, depth: int, state_BWS: Tensor) -> Tensor:
        return prepared.scores_BKC[:, depth : depth + 1].expand(-1, state_BWS.shape[1], -1)

    def advance(self, prepared: Marginals, depth: int, choice_BW: Tensor, state_BWS: Tensor) -> Tensor:
        del prepared, depth, choice_BW
        return state_BWS

    def block(self, prepared: Marginals, choice_BK: Tensor) -> Tensor:
        return prepared.scores_BKC[:, : choice_BK.shape[1]]

    def confidence(self, prepared: Marginals, depth: int, state_BWS: Tensor) -> Tensor | None:
        """The largest marginal as a logit: it needs no trained head."""
        best = prepared.scores_BKC[:, depth].amax(dim=-1, keepdim=True).exp().clamp(1e-6, 1 - 1e-6)
        return (best.log() - (-best).log1p()).expand(-1, state_BWS.shape[1])


def _load(source: HeadSource) -> NoCorrector:
    """Take the keys by which DeepSpec's plain drafters say that they have no head; a rank other than 0 stays unclaimed."""
    if source.config.get("markov_rank") == 0 and not source.config.get("enable_confidence_head"):
        for key in (
            "markov_rank",
            "markov_head_type",
            "enable_confidence_head",
            "confidence_head_with_markov",
            "num_anchors",
        ):
            source.config.pop(key, None)
    return NoCorrector()


SPEC = CorrectorSpec(
    name="none",
    title="DFlash",
    paper="arXiv 2602.06036",
    summary="the drafter's own marginals, each slot by itself",
    claims=lambda config, tensors: False,
    load=_load,
    save=lambda module: ({}, {}),
    new=lambda shape: NoCorrector(),
)
