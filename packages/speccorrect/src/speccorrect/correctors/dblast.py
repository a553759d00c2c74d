"""DBLAST: one latent category for the whole block; each category moves the hidden rows in its own way.

q(x_1 .. x_K) = sum_z pi_z prod_k q_z,k(x_k), so the scores are the posterior predictive: the mixture weighted by how well
each category explains the tokens so far. Category 0 is the drafter as it is. "hard" drafting keeps of every category its
most probable path alone, and scores the mass of the paths that are still agreed with (arXiv 2608.05448; no public
weights, the layout is ours).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speccorrect.contract import unroll
from speccorrect.products import Borrowed, Candidates, DraftBlock
from speccorrect.registry import CorrectorSpec
from speccorrect.source import HeadShape, HeadSource

Drafting = Literal["soft", "hard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DblastConfig:
    """Sizes and the way of drafting."""

    hidden_size: int  # D
    categories: int  # Z, at least 1
    rank: int | None  # of the expander; None is one full matrix per category
    drafting: Drafting
    temperature: float  # of the prior, above 0; part of q, not the sampling temperature

    def __post_init__(self) -> None:
        if self.categories < 1 or self.temperature <= 0:
            raise ValueError(
                f"dblast: got {self.categories} categories at {self.temperature}, expected 1 or more, above 0"
            )


@dataclass(frozen=True, slots=True)
class DblastPrepared:
    """Log-probabilities of every category, normalised over the vocabulary, and the log prior."""

    candidates: Candidates
    prior_B1Z: Tensor
    parts_BKZC: Tensor


class Dblast(nn.Module):
    """State: log posterior of the categories, fp32. Component logits are plain products with the borrowed head."""

    passes: int | None = None
    path_free_confidence = False

    def __init__(self, config: DblastConfig) -> None:
        super().__init__()
        self.config = config
        self.support: int | None = config.categories if config.drafting == "hard" else None
        hidden, moved = config.hidden_size, (config.categories - 1) * config.hidden_size
        self.prior = nn.Parameter(torch.empty(config.categories, hidden))
        self.prior_bias = nn.Parameter(torch.empty(config.categories))
        self.narrow = None if config.rank is None else nn.Parameter(torch.empty(config.rank, hidden))
        self.expand = nn.Parameter(torch.empty(moved, hidden if config.rank is None else config.rank))
        self.expand_bias = nn.Parameter(torch.empty(moved))

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Categories that all equal the drafter, so the mixture does; a prior that differs by context tells them apart."""
        self.prior.normal_(0.0, self.config.hidden_size**-0.5, generator=generator)
        self.prior_bias.zero_()
        if self.narrow is not None:
            self.narrow.normal_(0.0, self.config.hidden_size**-0.5, generator=generator)
        self.expand.zero_()
        self.expand_bias.zero_()

    def prepare(self, block: DraftBlock, borrowed: Borrowed, candidates: Candidates) -> DblastPrepared:
        anchor_row = block.hidden_BRD[:, :1].float()
        prior = F.linear(anchor_row, self.prior.float(), self.prior_bias.float()) / self.config.temperature
        hidden = block.rows_BKD
        narrow = hidden if self.narrow is None else F.linear(hidden.to(self.narrow.dtype), self.narrow)
        offset = F.linear(narrow.to(self.expand.dtype), self.expand, self.expand_bias).to(hidden.dtype)
        moved = hidden[:, :, None] + offset.unflatten(-1, (self.config.categories - 1, hidden.shape[-1]))
        # the one large product: every other category over the whole vocabulary
        logits_BKYV = F.linear(moved.to(borrowed.head_VD.dtype), borrowed.head_VD).float()
        log_prior = torch.log_softmax(prior, dim=-1)
        if self.config.drafting == "hard":
            listed, parts = _branches(candidates, logits_BKYV, hidden, borrowed.head_VD)
            return DblastPrepared(listed, log_prior, parts)
        lse = torch.logsumexp(logits_BKYV, dim=-1, keepdim=True)
        ids = candidates.ids_BKC
        if ids is not None:
            logits_BKYV = logits_BKYV.gather(-1, ids[:, :, None].expand(-1, -1, logits_BKYV.shape[2], -1))
        base = candidates.base_BKC[:, :, None]
        others = (logits_BKYV - lse).masked_fill(base == float("-inf"), float("-inf"))
        own = base - candidates.lse_BK[..., None, None]
        return DblastPrepared(candidates, log_prior, torch.cat([own, others], dim=2))

    def start(self, prepared: DblastPrepared) -> Tensor:
        return prepared.prior_B1Z

    def scores(self, prepared: DblastPrepared, depth: int, state_BWS: Tensor) -> Tensor:
        return torch.logsumexp(state_BWS[..., None] + prepared.parts_BKZC[:, depth, None], dim=2)

    def advance(self, prepared: DblastPrepared, depth: int, choice_BW: Tensor, state_BWS: Tensor) -> Tensor:
        parts_BCZ = prepared.parts_BKZC[:, depth].mT
        seen_BWZ = parts_BCZ.gather(1, choice_BW[..., None].expand(-1, -1, parts_BCZ.shape[-1]))
        joint = state_BWS + seen_BWZ
        # a path that no category offers has no posterior: it is dead, and keeps its state so that nothing turns NaN
        alive = joint.amax(dim=-1, keepdim=True) > float("-inf")
        return torch.log_softmax(torch.where(alive, joint, state_BWS), dim=-1)

    def block(self, prepared: DblastPrepared, choice_BK: Tensor) -> Tensor:
        """Prefix masses of all categories at once; paths of "hard" drafting can die on the way and are walked."""
        if self.config.drafting == "hard":
            return unroll(self, prepared, choice_BK)
        parts_BKZC = prepared.parts_BKZC[:, : choice_BK.shape[1]]
        index = choice_BK[:, :, None, None].expand(-1, -1, parts_BKZC.shape[2], -1)
        seen_BKZ = parts_BKZC.gather(-1, index).squeeze(-1)[:, :-1]
        seen_BKZ = seen_BKZ.masked_fill(seen_BKZ == float("-inf"), 0.0)  # not offered by any: see advance
        mass_BKZ = torch.cat([prepared.prior_B1Z, prepared.prior_B1Z + seen_BKZ.cumsum(dim=1)], dim=1)
        return torch.logsumexp(torch.log_softmax(mass_BKZ, dim=-1)[..., None] + parts_BKZC, dim=2)

    def confidence(self, prepared: DblastPrepared, depth: int, state_BWS: Tensor) -> Tensor | None:
        return None


def _branches(
    given: Candidates, logits_BKYV: Tensor, hidden_BKD: Tensor, head_VD: Tensor
) -> tuple[Candidates, Tensor]:
    """The categories' best tokens as candidates, and log 1 or log 0 for whether a category's branch takes each.

    Branches often agree; the first entry of a token then holds the mass of all, and its repeats are not offered.
    """
    own = given.base_BKC.argmax(dim=-1, keepdim=True)
    own = own if given.ids_BKC is None else given.ids_BKC.gather(-1, own)
    ids_BKZ = torch.cat([own, logits_BKYV.argmax(dim=-1)], dim=-1)
    same_BKZZ = ids_BKZ[..., :, None] == ids_BKZ[..., None, :]
    repeats_BKZ = same_BKZZ.tril(diagonal=-1).any(dim=-1)
    taken_BKZZ = same_BKZZ & ~repeats_BKZ[..., None, :]
    rows = F.embedding(ids_BKZ, head_VD).float()
    base = torch.matmul(rows, hidden_BKD.float()[..., None]).squeeze(-1)
    listed = Candidates(
        ids_BKC=ids_BKZ, base_BKC=base.masked_fill(repeats_BKZ, float("-inf")), lse_BK=given.lse_BK
    )
    # log 1 and log 0 by selection: a logarithm of a comparison would be a rounding away from 0
    return listed, torch.zeros_like(taken_BKZZ, dtype=torch.float32).masked_fill(~taken_BKZZ, float("-inf"))


# ours, and the same below "dblast." in files
HEAD: Final = "dblast"


def _claims(config: Mapping[str, Any], tensors: frozenset[str]) -> bool:
    return HEAD in config or any(name.startswith(HEAD + ".") for name in tensors)


def _load(source: HeadSource) -> Dblast:
    keys = HeadSource(shape=source.shape, config=dict(source.take_key(HEAD, dict)))
    drafting = keys.take_key("drafting", str)
    if drafting not in get_args(Drafting):
        raise ValueError(
            f"config key '{HEAD}.drafting': got {drafting!r}, expected {' or '.join(get_args(Drafting))}"
        )
    config = DblastConfig(
        hidden_size=source.shape.hidden_size,
        categories=keys.take_key("categories", int),
        rank=keys.take_key("rank", int) if "rank" in keys.config else None,
        drafting=cast("Drafting", drafting),
        temperature=keys.take_key("prior_temperature", float),
    )
    if keys.config:
        raise ValueError(f"config key {HEAD!r}: got unknown {', '.join(sorted(keys.config))}")
    module = Dblast(config)
    source.fill(module, {ours: (f"{HEAD}.{ours}",) for ours in module.state_dict()})
    return module


def _save(module: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    assert isinstance(module, Dblast), f"got a {type(module).__name__}"
    config = module.config
    keys = {
        "categories": config.categories,
        **({} if config.rank is None else {"rank": config.rank}),
        "drafting": config.drafting,
        "prior_temperature": config.temperature,
    }
    return {HEAD: keys}, {f"{HEAD}.{ours}": tensor for ours, tensor in module.state_dict().items()}


def _new(shape: HeadShape) -> Dblast:
    module = Dblast(
        DblastConfig(hidden_size=shape.hidden_size, categories=4, rank=None, drafting="soft", temperature=1.0)
    )
    module.reset(torch.Generator().manual_seed(0))
    return module


SPEC = CorrectorSpec(
    name="dblast",
    title="DBLAST",
    paper="arXiv 2608.05448",
    summary="one latent category per block: a mixture of drafts that the tokens so far choose between",
    claims=_claims,
    load=_load,
    save=_save,
    new=_new,
)
