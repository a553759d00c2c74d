"""DSpark: a Markov head that adds W2 f(W1[previous token]) to the base logits, and a head that foretells acceptance.

f is nothing ("vanilla"), a gate that reads the hidden row ("gated"), or a small recurrence ("rnn"). The first slot's
previous token is the anchor (arXiv 2607.05147; layout of DeepSpec).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speccorrect.products import Borrowed, Candidates, DraftBlock
from speccorrect.readout import Readout, read
from speccorrect.registry import CorrectorSpec
from speccorrect.source import HeadShape, HeadSource

Kind = Literal["vanilla", "gated", "rnn"]
Confidence = Literal[
    "none", "hidden", "markov"
]  # what the confidence reads: nothing, h, or h and W1[previous]


@dataclass(frozen=True, slots=True, kw_only=True)
class DSparkConfig:
    """Sizes and variants."""

    hidden_size: int  # D
    vocab_size: int
    rank: int  # width of both tables
    kind: Kind
    confidence: Confidence
    shifted: bool  # slot layout of the drafter that it was trained with; recorded, the block has settled it


@dataclass(frozen=True, slots=True)
class DSparkPrepared:
    """The hidden rows' share of everything, bias included, and the candidates' rows of W2."""

    candidates: Candidates
    anchor_B: Tensor
    readout: Readout
    mixed_BKR: Tensor | None  # fp32: h's share of the gate [.., r] or of the joint projection [.., 3r]
    confidence_BK: Tensor | None  # fp32: h's share of the logit


class DSpark(nn.Module):
    """State: the previous token's id (int64), or for "rnn" the fp32 triple of memory, output and W1[previous].

    The triple belongs to the slot about to be scored, so that one projection per token serves score and confidence.
    """

    support: int | None = None
    passes: int | None = None

    def __init__(self, config: DSparkConfig) -> None:
        super().__init__()
        self.config = config
        rank, hidden = config.rank, config.hidden_size
        self.path_free_confidence = config.confidence == "hidden"
        self.previous = nn.Parameter(torch.empty(config.vocab_size, rank))
        self.readout = nn.Parameter(torch.empty(config.vocab_size, rank))
        # columns: hidden then previous for the gate; memory, previous, hidden for the recurrence
        mixed = {"vanilla": None, "gated": (rank, hidden + rank), "rnn": (3 * rank, 2 * rank + hidden)}[
            config.kind
        ]
        self.mix = None if mixed is None else nn.Parameter(torch.empty(mixed))
        self.mix_bias = None if mixed is None else nn.Parameter(torch.empty(mixed[0]))
        seen = {"none": 0, "hidden": hidden, "markov": hidden + rank}[config.confidence]
        self.judge = nn.Parameter(torch.empty(1, seen)) if seen else None
        self.judge_bias = nn.Parameter(torch.empty(1)) if seen else None

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Random weights that correct nothing yet and expect every token with probability 1/2."""
        self.previous.normal_(0.0, 0.02, generator=generator)
        self.readout.zero_()
        if self.mix is not None and self.mix_bias is not None:
            self.mix.normal_(0.0, 0.02, generator=generator)
            self.mix_bias.zero_()
        if self.judge is not None and self.judge_bias is not None:
            self.judge.zero_()
            self.judge_bias.zero_()

    def prepare(self, block: DraftBlock, borrowed: Borrowed, candidates: Candidates) -> DSparkPrepared:
        del borrowed
        hidden, rank = self.config.hidden_size, self.config.rank
        mixed = judged = None
        if self.mix is not None and self.mix_bias is not None:
            columns = self.mix[:, :hidden] if self.config.kind == "gated" else self.mix[:, 2 * rank :]
            mixed = F.linear(block.rows_BKD.to(columns.dtype), columns).float() + self.mix_bias.float()
        if self.judge is not None and self.judge_bias is not None:
            # two numbers per slot decide how much is verified, so they are kept in fp32 throughout
            judged = block.rows_BKD.float() @ self.judge[0, :hidden].float() + self.judge_bias.float()
        return DSparkPrepared(candidates, block.anchor_B, read(self.readout, candidates), mixed, judged)

    def start(self, prepared: DSparkPrepared) -> Tensor:
        anchor = prepared.anchor_B[:, None]
        if self.config.kind != "rnn":
            return anchor[..., None]
        return self._recur(prepared, 0, anchor, None)

    def scores(self, prepared: DSparkPrepared, depth: int, state_BWS: Tensor) -> Tensor:
        rank = self.config.rank
        if self.config.kind == "rnn":
            feature = torch.tanh(state_BWS[..., rank : 2 * rank])
        else:
            feature = self._gated(prepared, slice(depth, depth + 1), self._embed(state_BWS.squeeze(-1)))
        base = prepared.candidates.base_BKC[:, depth : depth + 1]
        return torch.log_softmax(base + prepared.readout.slot(depth, feature), dim=-1)

    def advance(self, prepared: DSparkPrepared, depth: int, choice_BW: Tensor, state_BWS: Tensor) -> Tensor:
        token = prepared.candidates.tokens(depth, choice_BW)
        if self.config.kind != "rnn":
            return token[..., None]
        if depth + 1 == prepared.candidates.lse_BK.shape[1]:
            return state_BWS  # no slot is left that the state could belong to
        return self._recur(prepared, depth + 1, token, state_BWS[..., : self.config.rank])

    def block(self, prepared: DSparkPrepared, choice_BK: Tensor) -> Tensor:
        """All slots at once; the recurrence alone is walked, and only through its memory."""
        slots, ids = choice_BK.shape[1], prepared.candidates.ids_BKC
        token = choice_BK if ids is None else ids[:, :slots].gather(-1, choice_BK[..., None]).squeeze(-1)
        previous = torch.cat([prepared.anchor_B[:, None], token[:, :-1]], dim=1)
        if self.config.kind == "rnn":
            rank = self.config.rank
            states = [self._recur(prepared, 0, previous[:, :1], None)]
            for depth in range(1, slots):
                states.append(
                    self._recur(prepared, depth, previous[:, depth : depth + 1], states[-1][..., :rank])
                )
            feature = torch.tanh(torch.cat(states, dim=1)[..., rank : 2 * rank])
        else:
            feature = self._gated(prepared, slice(0, slots), self._embed(previous))
        return torch.log_softmax(
            prepared.candidates.base_BKC[:, :slots] + prepared.readout.slots(feature), dim=-1
        )

    def confidence(self, prepared: DSparkPrepared, depth: int, state_BWS: Tensor) -> Tensor | None:
        if self.judge is None or prepared.confidence_BK is None:
            return None
        seen = prepared.confidence_BK[:, depth : depth + 1].expand(-1, state_BWS.shape[1])
        if self.config.confidence == "hidden":
            return seen
        rank = self.config.rank
        previous = (
            state_BWS[..., 2 * rank :] if self.config.kind == "rnn" else self._embed(state_BWS.squeeze(-1))
        )
        return seen + previous @ self.judge[0, self.config.hidden_size :].float()

    def _embed(self, token: Tensor) -> Tensor:
        return F.embedding(token, self.previous).float()

    def _gated(self, prepared: DSparkPrepared, slots: slice, previous: Tensor) -> Tensor:
        if self.mix is None or prepared.mixed_BKR is None:
            return previous
        share = F.linear(previous.to(self.mix.dtype), self.mix[:, self.config.hidden_size :]).float()
        return torch.sigmoid(prepared.mixed_BKR[:, slots] + share) * previous

    def _recur(
        self, prepared: DSparkPrepared, depth: int, token_BW: Tensor, memory_BWR: Tensor | None
    ) -> Tensor:
        """The state for `depth` after its previous token; no memory is a memory of zero."""
        assert self.mix is not None
        assert prepared.mixed_BKR is not None
        rank, previous = self.config.rank, self._embed(token_BW)
        if memory_BWR is None:
            memory_BWR = torch.zeros_like(previous)
        seen = torch.cat([memory_BWR, previous], dim=-1).to(self.mix.dtype)
        joint = prepared.mixed_BKR[:, depth : depth + 1] + F.linear(seen, self.mix[:, : 2 * rank]).float()
        gate, candidate, output = joint.chunk(3, dim=-1)
        memory = torch.lerp(torch.tanh(candidate), memory_BWR, torch.sigmoid(gate))
        return torch.cat([memory, output, previous], dim=-1)


# ours, DeepSpec's, and the flat spelling of ModelOpt's exports
TENSORS: Final = {
    "previous": ("markov_head.markov_w1.weight", "markov_w1.weight"),
    "readout": ("markov_head.markov_w2.weight", "markov_w2.weight"),
}
MIX_TENSORS: Final[dict[Kind, dict[str, tuple[str, str]]]] = {
    "vanilla": {},
    "gated": {
        "mix": ("markov_head.gate_proj.weight", "gate_proj.weight"),
        "mix_bias": ("markov_head.gate_proj.bias", "gate_proj.bias"),
    },
    "rnn": {
        "mix": ("markov_head.joint_proj.weight", "joint_proj.weight"),
        "mix_bias": ("markov_head.joint_proj.bias", "joint_proj.bias"),
    },
}
JUDGE_TENSORS: Final = {
    "judge": ("confidence_head.proj.weight", "confidence_proj.weight"),
    "judge_bias": ("confidence_head.proj.bias", "confidence_proj.bias"),
}
PROJECTOR: Final = "dspark"
# how it was trained, or how another engine should run it: without meaning for what the head computes
SILENT_KEYS: Final = (
    "num_anchors",
    "confidence_head_alpha",
    "loss_decay_gamma",
    "attention_mode",
    "dspark_draft_topk",
)


def _names(config: DSparkConfig) -> dict[str, tuple[str, str]]:
    return TENSORS | MIX_TENSORS[config.kind] | (JUDGE_TENSORS if config.confidence != "none" else {})


def _claims(config: Mapping[str, Any], tensors: frozenset[str]) -> bool:
    theirs = {name for names in TENSORS.values() for name in names}
    return config.get("projector_type") == PROJECTOR or bool(theirs & tensors)


def _load(source: HeadSource) -> DSpark:
    if not source.shape.layout_stated:
        raise ValueError(
            "config key 'sample_from_anchor': missing, expected true or false: the layout of the slots; state it"
        )
    projector = source.take_key("projector_type", str, PROJECTOR)
    if projector != PROJECTOR:
        raise ValueError(f"config key 'projector_type': got {projector!r}, expected {PROJECTOR!r}")
    for key in ("sample_from_anchor", "shift_label"):
        # whoever opened the drafter may have taken the layout from here already
        if source.take_key(key, bool, source.shape.shifted) is not source.shape.shifted:
            raise ValueError(
                f"config key {key!r}: got {not source.shape.shifted}, expected the drafter's layout"
            )
    for key in SILENT_KEYS:
        source.config.pop(key, None)
    rank = _agreed(source, ("markov_rank", "dspark_markov_rank"), int, 256)
    if rank < 1:
        raise ValueError(
            f"config key 'markov_rank': got {rank}, expected at least 1, since there is a Markov head"
        )
    kind = _agreed(source, ("markov_head_type", "dspark_markov_head_type"), str, "vanilla")
    if kind not in get_args(Kind):
        raise ValueError(f"config key 'markov_head_type': got {kind!r}, expected {', '.join(get_args(Kind))}")
    config = DSparkConfig(
        hidden_size=source.shape.hidden_size,
        vocab_size=source.shape.vocab_size,
        rank=rank,
        kind=cast("Kind", kind),
        confidence=_confidence(source, rank),
        shifted=source.shape.shifted,
    )
    module = DSpark(config)
    source.fill(module, _names(config), drafted=("readout",))
    return module


V = TypeVar("V", int, str, bool)


def _agreed(source: HeadSource, keys: tuple[str, ...], kind: type[V], default: V) -> V:
    """One value for several spellings of a key."""
    given = {key: source.take_key(key, kind) for key in keys if key in source.config}
    if len(set(given.values())) > 1:
        raise ValueError(f"config keys {' and '.join(given)}: got {list(given.values())}, expected one value")
    return next(iter(given.values()), default)


def _confidence(source: HeadSource, rank: int) -> Confidence:
    """Readers disagree on what a missing key means, so the tensor's width decides and a key may only agree."""
    stored = [source.tensors[name] for name in JUDGE_TENSORS["judge"] if name in source.tensors]
    enabled = _agreed(source, ("enable_confidence_head", "use_confidence_head"), bool, bool(stored))
    if enabled is not bool(stored):
        raise ValueError(
            f"config key 'enable_confidence_head': got {enabled}, expected {not enabled} by the tensors"
        )
    if not stored:
        source.config.pop("confidence_head_with_markov", None)  # a choice about a head that does not exist
        return "none"
    with_markov = stored[0].shape[-1] != source.shape.hidden_size
    if source.take_key("confidence_head_with_markov", bool, with_markov) is not with_markov:
        hidden = source.shape.hidden_size
        raise ValueError(
            f"config key 'confidence_head_with_markov': got {not with_markov} and a tensor of shape {list(stored[0].shape)}, "
            f"expected width {hidden} without or {hidden + rank} with"
        )
    return "markov" if with_markov else "hidden"


def _save(module: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    assert isinstance(module, DSpark), f"got a {type(module).__name__}"
    config = module.config
    keys = {
        "projector_type": PROJECTOR,
        "sample_from_anchor": config.shifted,
        "markov_rank": config.rank,
        "markov_head_type": config.kind,
        "enable_confidence_head": config.confidence != "none",
        "confidence_head_with_markov": config.confidence == "markov",
    }
    state = module.state_dict()
    return keys, {theirs[0]: state[ours] for ours, theirs in _names(config).items()}


def _new(shape: HeadShape) -> DSpark:
    module = DSpark(
        DSparkConfig(
            hidden_size=shape.hidden_size,
            vocab_size=shape.vocab_size,
            rank=min(256, shape.hidden_size),
            kind="vanilla",
            confidence="markov",
            shifted=shape.shifted,
        )
    )
    module.reset(torch.Generator().manual_seed(0))
    return module


SPEC = CorrectorSpec(
    name="dspark",
    title="DSpark",
    paper="arXiv 2607.05147",
    summary="a Markov head: every slot is corrected for the token before it",
    claims=_claims,
    load=_load,
    save=_save,
    new=_new,
)
