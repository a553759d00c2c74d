"""LiLiCorr: a small transformer sees all candidates of all slots and says which pairs of neighbours belong together.

Every candidate gets a vector as successor and one as predecessor; a pair scores a fixed multiple of their cosine, and
slot 0 is linked to a vector of the target's feature before the anchor. The drafter's own probabilities act through the
features of a candidate only: they are not added to the scores. (arXiv 2608.20530)
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

NUM_FEATURES = 5
# log-probabilities below this are all alike; a padded candidate's minus infinity would make the features NaN
LOWEST_LOG_PROBABILITY = -1e4


@dataclass(frozen=True, slots=True, kw_only=True)
class LiLiCorrConfig:
    """Sizes of the lattice transformer. `vector_eps` and `logit_scale` change no shape: a guess would go unnoticed."""

    shape: HeadShape
    top_k: int  # candidates per slot, at least 1
    width: int  # of the lattice transformer; the embedding is projected to it unless it is the target's own
    factor: int  # width of the link vectors
    num_layers: int
    num_heads: int  # divides the width
    mlp_ratio: float  # width of the MLP over the width
    vector_eps: float  # least length that a link vector is divided by
    logit_scale: float  # a pair's score is this times a cosine


class LatticeLayer(nn.Module):
    """A pre-norm layer in which every candidate of every slot attends to every other."""

    def __init__(self, config: LiLiCorrConfig) -> None:
        super().__init__()
        width, inner = config.width, int(config.width * config.mlp_ratio)
        self.num_heads = config.num_heads
        self.attention_norm = nn.RMSNorm(width, config.shape.norm_eps)
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.RMSNorm(width, config.shape.norm_eps)
        self.mlp_up = nn.Linear(width, inner)
        self.mlp_down = nn.Linear(inner, width)

    def forward(self, x_BTD: Tensor, bias_BATT: Tensor) -> Tensor:
        batch, rows, width = x_BTD.shape
        packed = self.attention_in(self.attention_norm(x_BTD)).view(batch, rows, 3, self.num_heads, -1)
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias_BATT)
        x_BTD = x_BTD + self.attention_out(mixed.transpose(1, 2).reshape(batch, rows, width))
        return x_BTD + self.mlp_down(F.silu(self.mlp_up(self.mlp_norm(x_BTD))))


class LiLiCorr(nn.Module):
    """The lattice link corrector."""

    passes: int | None = None
    path_free_confidence = False

    def __init__(self, config: LiLiCorrConfig) -> None:
        super().__init__()
        self.config = config
        self.support: int | None = config.top_k
        shape, width = config.shape, config.width
        self.token = nn.Identity() if width == shape.hidden_size else nn.Linear(shape.hidden_size, width)
        self.hidden = nn.Linear(shape.hidden_size, width)
        self.context = nn.Linear(shape.hidden_size, width)
        self.feature_norm = nn.LayerNorm(NUM_FEATURES)
        self.feature_up = nn.Linear(NUM_FEATURES, width)
        self.feature_down = nn.Linear(width, width)
        # the odd shapes are those of the public files
        self.slot = nn.Parameter(torch.empty(1, 1, shape.slots, 1, width))
        self.rank = nn.Parameter(torch.empty(1, 1, 1, config.top_k, width))
        self.relative_bias = nn.Parameter(torch.empty(config.num_heads, 2 * shape.block_size - 1))
        self.same_slot_bias = nn.Parameter(torch.empty(config.num_heads))
        self.layers = nn.ModuleList(LatticeLayer(config) for _ in range(config.num_layers))
        self.output_norm = nn.RMSNorm(width, shape.norm_eps)
        self.anchor_norm = nn.RMSNorm(width, shape.norm_eps)
        self.factor = nn.Linear(3 * width, width)
        self.out = nn.Linear(width, config.factor)
        self.into = nn.Linear(width, config.factor)
        self.anchor_out = nn.Linear(width, config.factor)

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Draw fresh weights under which all candidates of a slot score alike, to the last bit.

        Ties go to the first index, so the greedy chain is the drafter's own. What makes them equal is one side of the
        links alone, the successors', held at one unit vector: were both sides constant, no gradient would part them.
        """
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.02, generator=generator)
            else:
                parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
        self.into.weight.zero_()
        self.into.bias[0] = 1.0

    def prepare(self, block: DraftBlock, borrowed: Borrowed, candidates: Candidates) -> Lattice:
        """Run the lattice transformer once and tabulate the links of all pairs."""
        candidates = best_candidates(candidates, self.config.top_k)
        x_BKCD, anchor_BD = self._nodes(block, borrowed, candidates)
        out_BKCR, into_BKCR, start_BR = self._vectors(x_BKCD, anchor_BD)
        scale = self.config.logit_scale
        first_BC = (start_BR[:, None] @ into_BKCR[:, 0].transpose(-1, -2)).squeeze(1).float() * scale
        pairs_BKCC = (out_BKCR[:, :-1] @ into_BKCR[:, 1:].transpose(-1, -2)).float() * scale
        return lattice(candidates, first_BC, pairs_BKCC)

    def _nodes(self, block: DraftBlock, borrowed: Borrowed, candidates: Candidates) -> tuple[Tensor, Tensor]:
        """Candidates after the transformer `[B, K, C, D]`, and the anchor's row, which takes no part in it."""
        ids_BKC = candidates.ids_BKC
        assert ids_BKC is not None
        batch, slots, count = ids_BKC.shape
        dtype = self.hidden.weight.dtype
        x_BKCD = (
            self.token(borrowed.embedding_VD[ids_BKC].to(dtype))
            + self.hidden(block.rows_BKD[:, :slots].to(dtype))[:, :, None]
            + self.feature_down(
                F.silu(self.feature_up(self.feature_norm(self._features(candidates).to(dtype))))
            )
            + (self.slot[0, :, :slots] + self.rank[0, :, :, :count])
        )
        absent_BT = (candidates.base_BKC == float("-inf")).flatten(1)
        bias_BATT = self._slot_bias(slots, count).masked_fill(absent_BT[:, None, None], float("-inf"))
        x_BTD = x_BKCD.flatten(1, 2)
        for layer in self.layers:
            x_BTD = layer(x_BTD, bias_BATT)
        context_BD = self.context(block.feature_BD.to(dtype)) * block.feature_valid_B[:, None].to(dtype)
        return self.output_norm(x_BTD).view(batch, slots, count, -1), self.anchor_norm(context_BD)

    def _features(self, candidates: Candidates) -> Tensor:
        """What the drafter thinks of a candidate, in fp32: log p, p, log p - best, rank, and whether it is the best."""
        log_p = (candidates.base_BKC - candidates.lse_BK[..., None]).clamp(min=LOWEST_LOG_PROBABILITY)
        index = torch.arange(log_p.shape[-1], device=log_p.device)
        # the rank is told in terms of the trained number of candidates, also where fewer are offered
        rank = (index / max(self.config.top_k - 1, 1)).to(log_p.dtype).expand_as(log_p)
        best = (index == 0).to(log_p.dtype).expand_as(log_p)
        return torch.stack([log_p, log_p.exp(), log_p - log_p[..., :1], rank, best], dim=-1)

    def _slot_bias(self, slots: int, count: int) -> Tensor:
        """Attention bias `[A, T, T]` by the distance of two slots, repeated for all candidates."""
        index = torch.arange(slots, device=self.relative_bias.device)
        distance = index[:, None] - index
        bias = self.relative_bias[:, distance + self.config.shape.block_size - 1]
        bias = bias + self.same_slot_bias[:, None, None] * (distance == 0)
        rows = slots * count
        return bias[:, :, None, :, None].expand(-1, -1, count, -1, count).reshape(1, -1, rows, rows)

    def _vectors(self, x_BKCD: Tensor, anchor_BD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Link vectors of length 1: as predecessor, as successor, and the anchor's as predecessor of slot 0."""
        # [x, a, x * a] W without the triple-wide input: the anchor's part is one row, and x * a = a scaled into W
        own_DD, anchor_DD, both_DD = self.factor.weight.chunk(3, dim=1)
        shift_BD = F.linear(anchor_BD, anchor_DD, self.factor.bias)
        y_BKCD = F.linear(x_BKCD, own_DD) + F.linear(x_BKCD * anchor_BD[:, None, None], both_DD)
        y_BKCD = F.silu(y_BKCD + shift_BD[:, None, None])
        eps = self.config.vector_eps
        return (
            F.normalize(self.out(y_BKCD), dim=-1, eps=eps),
            F.normalize(self.into(y_BKCD), dim=-1, eps=eps),
            F.normalize(self.anchor_out(anchor_BD), dim=-1, eps=eps),
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


PREFIX = "lilicorr."
# Ours, theirs; {i} is a layer's number. A module stands for its weight and, where it has one, its bias.
MODULES = (
    ("token", "token_proj"),
    ("hidden", "pass_hidden_proj"),
    ("context", "context_proj"),
    ("feature_norm", "feature_mlp.0"),
    ("feature_up", "feature_mlp.1"),
    ("feature_down", "feature_mlp.3"),
    ("layers.{i}.attention_norm", "layers.{i}.attn_norm"),
    ("layers.{i}.attention_out", "layers.{i}.attn.out_proj"),
    ("layers.{i}.mlp_norm", "layers.{i}.mlp_norm"),
    ("layers.{i}.mlp_up", "layers.{i}.mlp.0"),
    ("layers.{i}.mlp_down", "layers.{i}.mlp.2"),
    ("output_norm", "output_norm"),
    ("anchor_norm", "anchor_norm"),
    ("factor", "factor_input_proj"),
    ("out", "out_head"),
    ("into", "in_head"),
    ("anchor_out", "anchor_out_head"),
)
TENSORS = (
    ("slot", "slot_embedding"),
    ("rank", "rank_embedding"),
    ("relative_bias", "relative_slot_bias"),
    ("same_slot_bias", "same_slot_bias"),
    ("layers.{i}.attention_in.weight", "layers.{i}.attn.in_proj_weight"),
    ("layers.{i}.attention_in.bias", "layers.{i}.attn.in_proj_bias"),
)
# The same modules as servers name them, accepted and never written.
OTHER_NAMES = {
    "feature_mlp.0": "feature_norm",
    "feature_mlp.1": "feature_mlp.up_proj",
    "feature_mlp.3": "feature_mlp.down_proj",
    "layers.{i}.mlp.0": "layers.{i}.mlp.up_proj",
    "layers.{i}.mlp.2": "layers.{i}.mlp.down_proj",
}


def _names(module: LiLiCorr) -> dict[str, tuple[str, ...]]:
    """Our tensor names with the public ones."""
    kinds = [
        (f"{ours}.{kind}", *(f"{public}.{kind}" for public in (theirs, OTHER_NAMES.get(theirs)) if public))
        for ours, theirs in MODULES
        for kind in ("weight", "bias")
    ]
    own = module.state_dict()
    return {
        name: tuple(PREFIX + public.replace("{i}", str(layer)) for public in theirs)
        for ours, *theirs in (*TENSORS, *kinds)
        for layer in range(module.config.num_layers if "{i}" in ours else 1)
        if (name := ours.replace("{i}", str(layer))) in own
    }


def _claims(config: Mapping[str, Any], tensors: frozenset[str]) -> bool:
    """Whether a checkpoint has a lattice, whole or in part."""
    return "lilicorr_candidate_topk" in config or any(name.startswith(PREFIX) for name in tensors)


def _load(source: HeadSource) -> LiLiCorr:
    """Take the lattice out of a checkpoint. Every key is required: defaults would load and score another function."""
    if not source.take_key("lilicorr_enabled", bool, default=True):
        raise ValueError(
            "config key 'lilicorr_enabled': got False, expected True; remove the head's keys and tensors"
        )
    if source.take_key("has_own_lm_head", bool, default=False):
        raise ValueError(
            "config key 'has_own_lm_head': got True, expected False: candidates are the target's"
        )
    kind = source.take_key("projector_type", str, default="lilicorr")
    if kind != "lilicorr":
        raise ValueError(f"config key 'projector_type': got {kind!r}, expected 'lilicorr'")
    config = LiLiCorrConfig(
        shape=source.shape,
        top_k=source.take_positive("lilicorr_candidate_topk", int),
        width=source.take_key("lilicorr_hidden_size", int) or source.shape.hidden_size,
        factor=source.take_positive("lilicorr_factor_dim", int),
        num_layers=source.take_positive("lilicorr_num_layers", int),
        num_heads=source.take_positive("lilicorr_num_heads", int),
        mlp_ratio=source.take_positive("lilicorr_mlp_ratio", float),
        vector_eps=source.take_positive("lilicorr_vector_eps", float),
        logit_scale=source.take_positive("lilicorr_logit_scale", float),
    )
    if config.width < 1 or config.width % config.num_heads:
        raise ValueError(
            f"config key 'lilicorr_hidden_size': got {config.width}, expected a multiple of {config.num_heads} heads"
        )
    if config.top_k > source.shape.vocab_size:
        raise ValueError(
            f"config key 'lilicorr_candidate_topk': got {config.top_k}, expected at most {source.shape.vocab_size}"
        )
    module = LiLiCorr(config)
    source.fill(module, _names(module))
    return module


def _save(module: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Keys and tensors under their public names."""
    assert isinstance(module, LiLiCorr), type(module)
    config, names = module.config, _names(module)
    keys = {
        "lilicorr_candidate_topk": config.top_k,
        "lilicorr_hidden_size": config.width,
        "lilicorr_factor_dim": config.factor,
        "lilicorr_num_layers": config.num_layers,
        "lilicorr_num_heads": config.num_heads,
        "lilicorr_mlp_ratio": config.mlp_ratio,
        "lilicorr_vector_eps": config.vector_eps,
        "lilicorr_logit_scale": config.logit_scale,
    }
    return keys, {names[ours][0]: tensor for ours, tensor in module.state_dict().items()}


def _new(shape: HeadShape) -> LiLiCorr:
    """An untrained lattice of its authors' sizes, less where the target is small."""
    width = min(1024, shape.hidden_size)
    config = LiLiCorrConfig(
        shape=shape,
        top_k=min(8, shape.vocab_size),
        width=width,
        factor=width,
        num_layers=2,
        num_heads=8 if width % 8 == 0 else 1,
        mlp_ratio=2.0,
        vector_eps=1e-4,
        logit_scale=8.0,
    )
    module = LiLiCorr(config)
    module.reset(torch.Generator().manual_seed(0))
    return module


SPEC = CorrectorSpec(
    name="lilicorr",
    title="LiLiCorr",
    paper="arXiv 2608.20530",
    summary="a small transformer over the lattice of each slot's 8 best tokens scores neighbouring pairs",
    claims=_claims,
    load=_load,
    save=_save,
    new=_new,
)
