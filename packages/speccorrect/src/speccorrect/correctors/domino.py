"""Domino: a GRU over the drafted prefix and a low-rank correction of the base logits.

With the state g after the anchor and x_1 .. x_{k-1}, slot k scores base + W2 silu(W1 [h_k ; g]) over the candidates. The
first slots stay plain (arXiv 2605.29707). As a tree this is DominoTree (arXiv 2607.08642), on the same weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speccorrect.gru import Gru
from speccorrect.products import Borrowed, Candidates, DraftBlock
from speccorrect.readout import Readout, read
from speccorrect.registry import CorrectorSpec
from speccorrect.source import HeadShape, HeadSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DominoConfig:
    """Sizes of the head and the one choice that no tensor shows."""

    hidden_size: int  # D of hidden rows and embeddings
    vocab_size: int
    gru_size: int  # width of the prefix state
    rank: int  # of the correction
    plain_slots: int  # leading slots that keep their base logits, at least 0
    shifted: bool  # slot layout of the drafter that it was trained with; recorded, the block has settled it


@dataclass(frozen=True, slots=True)
class DominoPrepared:
    """The hidden rows' share of the correction, and the candidates' rows of its readout."""

    candidates: Candidates
    start_B1S: Tensor
    hidden_BKR: Tensor  # W1's share of h, fp32
    readout: Readout
    embedding_VD: Tensor


class Domino(nn.Module):
    """State: that of the GRU, fp32."""

    support: int | None = None
    passes: int | None = None
    path_free_confidence = False

    def __init__(self, config: DominoConfig) -> None:
        super().__init__()
        self.config = config
        self.prefix = Gru(config.hidden_size, config.gru_size)
        self.narrow = nn.Parameter(torch.empty(config.rank, config.hidden_size + config.gru_size))
        self.readout = nn.Parameter(torch.empty(config.vocab_size, config.rank))

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Random weights that correct nothing yet."""
        self.prefix.reset(generator)
        self.narrow.normal_(0.0, 0.02, generator=generator)
        self.readout.zero_()

    def prepare(self, block: DraftBlock, borrowed: Borrowed, candidates: Candidates) -> DominoPrepared:
        anchor = F.embedding(block.anchor_B[:, None], borrowed.embedding_VD)
        rows = block.rows_BKD.to(self.narrow.dtype)
        return DominoPrepared(
            candidates=candidates,
            start_B1S=self.prefix.first(self.prefix.gates(anchor)),
            hidden_BKR=F.linear(rows, self.narrow[:, : self.config.hidden_size]).float(),
            readout=read(self.readout, candidates),
            embedding_VD=borrowed.embedding_VD,
        )

    def start(self, prepared: DominoPrepared) -> Tensor:
        return prepared.start_B1S

    def scores(self, prepared: DominoPrepared, depth: int, state_BWS: Tensor) -> Tensor:
        base = prepared.candidates.base_BKC[:, depth : depth + 1]
        if depth < self.config.plain_slots:
            return (base - prepared.candidates.lse_BK[:, depth, None, None]).expand(
                -1, state_BWS.shape[1], -1
            )
        narrow = F.silu(prepared.hidden_BKR[:, depth : depth + 1] + self._narrowed(state_BWS))
        return torch.log_softmax(base + prepared.readout.slot(depth, narrow), dim=-1)

    def advance(self, prepared: DominoPrepared, depth: int, choice_BW: Tensor, state_BWS: Tensor) -> Tensor:
        token = prepared.candidates.tokens(depth, choice_BW)
        return self.prefix.step(self.prefix.gates(F.embedding(token, prepared.embedding_VD)), state_BWS)

    def block(self, prepared: DominoPrepared, choice_BK: Tensor) -> Tensor:
        """One product for the gates and one for the correction; only the recurrence is walked."""
        candidates, slots = prepared.candidates, choice_BK.shape[1]
        ids = candidates.ids_BKC
        token = choice_BK if ids is None else ids[:, :slots].gather(-1, choice_BK[..., None]).squeeze(-1)
        gates = self.prefix.gates(F.embedding(token[:, :-1], prepared.embedding_VD))
        states = [prepared.start_B1S]
        for depth in range(slots - 1):
            states.append(self.prefix.step(gates[:, depth : depth + 1], states[-1]))
        narrow = F.silu(prepared.hidden_BKR[:, :slots] + self._narrowed(torch.cat(states, dim=1)))
        base = candidates.base_BKC[:, :slots]
        corrected = torch.log_softmax(base + prepared.readout.slots(narrow), dim=-1)
        plain = min(self.config.plain_slots, slots)
        return torch.cat(
            [(base - candidates.lse_BK[:, :slots, None])[:, :plain], corrected[:, plain:]], dim=1
        )

    def confidence(self, prepared: DominoPrepared, depth: int, state_BWS: Tensor) -> Tensor | None:
        return None

    def _narrowed(self, state: Tensor) -> Tensor:
        return F.linear(state.to(self.narrow.dtype), self.narrow[:, self.config.hidden_size :]).float()


# ours, theirs; older files put all of theirs below "logit_head."
TENSORS: Final = {
    "prefix.input_weight": "prefix_gru.weight_ih_l0",
    "prefix.state_weight": "prefix_gru.weight_hh_l0",
    "narrow": "embed_proj.0.weight",
    "readout": "embed_proj.2.weight",
}
OLD_PREFIX: Final = "logit_head."
PROJECTORS: Final = ("domino", "causal_v5")


def _claims(config: Mapping[str, Any], tensors: frozenset[str]) -> bool:
    theirs = {*TENSORS.values(), *(OLD_PREFIX + name for name in TENSORS.values())}
    return config.get("projector_type") in PROJECTORS or bool(theirs & tensors)


def _load(source: HeadSource) -> Domino:
    projector = source.take_key("projector_type", str)
    if projector not in PROJECTORS:
        raise ValueError(
            f"config key 'projector_type': got {projector!r}, expected {' or '.join(PROJECTORS)}"
        )
    # whoever opened the drafter may have taken the layout from here already
    if source.take_key("shift_label", bool, source.shape.shifted) is not source.shape.shifted:
        raise ValueError(
            f"config key 'shift_label': got {not source.shape.shifted}, expected the drafter's layout"
        )
    config = DominoConfig(
        hidden_size=source.shape.hidden_size,
        vocab_size=source.shape.vocab_size,
        gru_size=source.take_positive("gru_hidden_dim", int),
        rank=source.take_positive("emb_dim", int),
        plain_slots=source.take_key("pure_draft_prefix_len", int),
        shifted=source.shape.shifted,
    )
    if config.plain_slots < 0:
        raise ValueError(f"config key 'pure_draft_prefix_len': got {config.plain_slots}, expected at least 0")
    module = Domino(config)
    source.fill(module, {ours: (theirs, OLD_PREFIX + theirs) for ours, theirs in TENSORS.items()})
    return module


def _save(module: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    assert isinstance(module, Domino), f"got a {type(module).__name__}"
    config = module.config
    keys = {
        "projector_type": PROJECTORS[0],
        "shift_label": config.shifted,
        "pure_draft_prefix_len": config.plain_slots,
        "gru_hidden_dim": config.gru_size,
        "emb_dim": config.rank,
    }
    state = module.state_dict()
    return keys, {theirs: state[ours] for ours, theirs in TENSORS.items()}


def _new(shape: HeadShape) -> Domino:
    module = Domino(
        DominoConfig(
            hidden_size=shape.hidden_size,
            vocab_size=shape.vocab_size,
            gru_size=min(1024, 2 * shape.hidden_size),
            rank=min(256, shape.hidden_size),
            plain_slots=1,
            shifted=shape.shifted,
        )
    )
    module.reset(torch.Generator().manual_seed(0))
    return module


SPEC = CorrectorSpec(
    name="domino",
    title="Domino",
    paper="arXiv 2605.29707",
    summary="a GRU over the drafted prefix corrects every slot",
    claims=_claims,
    load=_load,
    save=_save,
    new=_new,
)
