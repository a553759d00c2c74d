"""DeLS-Spec: a small language model of the drafted tokens alone, added to the drafter's logits; trained without either.

From the second slot on a row is base + alpha * local - beta * log unigram, where the unigram takes back what base and
local model both know of a token's frequency (arXiv 2607.07409). The local model is a GRU whose first input is the first
drafted token, not the anchor, or a Markov table of the token before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speccorrect.gru import Gru
from speccorrect.products import Borrowed, Candidates, DraftBlock
from speccorrect.readout import Readout, read, read_widened
from speccorrect.registry import CorrectorSpec
from speccorrect.source import HeadShape, HeadSource

Kind = Literal["rnn", "markov"]
Tables = Literal[
    "low_rank", "target_lm_head"
]  # tables of the head's own, or factors that pass through the target's
Activation = Literal["identity", "silu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeLSConfig:
    """Sizes, variants, and how much of the local model is mixed in."""

    hidden_size: int  # D of the target's embedding and head
    vocab_size: int
    kind: Kind
    tables: Tables
    gru_size: int  # width of the state; 0 for "markov"
    rank: int  # width in front of the vocabulary
    activation: Activation  # behind the projection to the rank; "identity" for "markov"
    plain_slots: int  # leading slots that keep their base logits, at least 1
    alpha: tuple[float, ...]  # weight of the local logits: one number, or one per corrected slot
    beta: tuple[float, ...]  # weight of the unigram, likewise
    smoothing: float  # added to every count, above 0
    shifted: bool  # trained for shifted drafters; recorded, the block has settled the layout

    def __post_init__(self) -> None:
        if self.plain_slots < 1:
            raise ValueError(
                f"pure_draft_prefix_len: got {self.plain_slots}, expected at least 1: no token is drafted yet"
            )
        if self.smoothing <= 0:
            raise ValueError(
                f"unigram_smoothing: got {self.smoothing}, expected a number above 0, or rare tokens win"
            )


@dataclass(frozen=True, slots=True)
class DeLSPrepared:
    """Base logits with the unigram taken off, and the candidates' rows of the local readout."""

    candidates: Candidates
    anchor_B: Tensor
    lifted_BKC: Tensor
    readout: Readout
    embedding_VD: Tensor


class DeLS(nn.Module):
    """State: that of the GRU (fp32, zero before the first drafted token), or the previous token's id (int64)."""

    support: int | None = None
    passes: int | None = None
    path_free_confidence = False

    def __init__(self, config: DeLSConfig) -> None:
        super().__init__()
        self.config = config
        rank, hidden, vocab = config.rank, config.hidden_size, config.vocab_size
        own = config.tables == "low_rank"
        recurrent = config.kind == "rnn"
        self.memory = Gru(hidden, config.gru_size) if recurrent else None
        self.previous = nn.Parameter(torch.empty(vocab, rank)) if own and not recurrent else None
        # the factors stand as the public files have them: [out, in] for the GRU's, [in, out] for the Markov table's
        narrow = (rank, config.gru_size) if recurrent else (hidden, rank)
        self.narrow = None if own and not recurrent else nn.Parameter(torch.empty(narrow))
        self.readout = nn.Parameter(torch.empty(vocab, rank)) if own else None
        widen = (hidden, rank) if recurrent else (rank, hidden)
        self.widen = None if own else nn.Parameter(torch.empty(widen))
        self.counts: Tensor
        self.register_buffer("counts", torch.zeros(vocab, dtype=torch.int64))

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Random weights that correct nothing yet, and no token seen more often than another."""
        if self.memory is not None:
            self.memory.reset(generator)
        for tensor in (self.previous, self.narrow):
            if tensor is not None:
                tensor.normal_(0.0, 0.02, generator=generator)
        for tensor in (self.readout, self.widen):
            if tensor is not None:
                tensor.zero_()
        self.counts.zero_()

    @torch.no_grad()
    def observe(self, tokens: Tensor) -> None:
        """Count tokens of the training text into the unigram."""
        self.counts += torch.bincount(tokens.flatten(), minlength=self.config.vocab_size)

    def prepare(self, block: DraftBlock, borrowed: Borrowed, candidates: Candidates) -> DeLSPrepared:
        if self.readout is not None:
            readout = read(self.readout, candidates)
        else:
            assert self.widen is not None, "a head has a readout or a factor of one"
            widen = self.widen if self.config.kind == "rnn" else self.widen.mT
            readout = read_widened(borrowed.head_VD, widen, candidates)
        ids = candidates.ids_BKC
        # log of the count and not of the share: what they differ by is the same for all candidates
        seen = ((self.counts if ids is None else self.counts[ids]).float() + self.config.smoothing).log()
        seen = seen.expand_as(candidates.base_BKC)
        return DeLSPrepared(
            candidates, block.anchor_B, self._lift(candidates, seen), readout, borrowed.embedding_VD
        )

    def _lift(self, candidates: Candidates, seen_BKC: Tensor) -> Tensor:
        beta, base = self.config.beta, candidates.base_BKC
        if len(beta) == 1:
            return torch.sub(base, seen_BKC, alpha=beta[0])
        # plain slots never read their row; weights stay host numbers, so that nothing is copied to the device here
        weights = (0.0,) * self.config.plain_slots + beta
        rows = [torch.sub(base[:, k], seen_BKC[:, k], alpha=weights[k]) for k in range(base.shape[1])]
        return torch.stack(rows, dim=1)

    def start(self, prepared: DeLSPrepared) -> Tensor:
        batch = prepared.anchor_B.shape[0]
        if self.memory is None:
            return prepared.anchor_B[:, None, None]
        return prepared.lifted_BKC.new_zeros(batch, 1, self.config.gru_size)

    def scores(self, prepared: DeLSPrepared, depth: int, state_BWS: Tensor) -> Tensor:
        candidates = prepared.candidates
        if depth < self.config.plain_slots:
            plain = candidates.base_BKC[:, depth : depth + 1] - candidates.lse_BK[:, depth, None, None]
            return plain.expand(-1, state_BWS.shape[1], -1)
        known = state_BWS if self.memory is not None else state_BWS.squeeze(-1)
        feature = self._feature(known, prepared) * self._alpha(depth)
        return torch.log_softmax(
            prepared.lifted_BKC[:, depth : depth + 1] + prepared.readout.slot(depth, feature), dim=-1
        )

    def advance(self, prepared: DeLSPrepared, depth: int, choice_BW: Tensor, state_BWS: Tensor) -> Tensor:
        token = prepared.candidates.tokens(depth, choice_BW)
        if self.memory is None:
            return token[..., None]
        gates = self.memory.gates(F.embedding(token, prepared.embedding_VD))
        return self.memory.first(gates) if depth == 0 else self.memory.step(gates, state_BWS)

    def block(self, prepared: DeLSPrepared, choice_BK: Tensor) -> Tensor:
        """All slots at once but for the recurrence."""
        slots, candidates = choice_BK.shape[1], prepared.candidates
        base = candidates.base_BKC[:, :slots] - candidates.lse_BK[:, :slots, None]
        plain = min(self.config.plain_slots, slots)
        if plain == slots:
            return base
        feature = self._features(prepared, choice_BK)
        weighted = torch.cat([feature[:, k : k + 1] * self._alpha(k) for k in range(plain, slots)], dim=1)
        weighted = torch.cat([feature[:, :plain], weighted], dim=1)
        local = prepared.lifted_BKC[:, :slots] + prepared.readout.slots(weighted)
        return torch.cat([base[:, :plain], torch.log_softmax(local, dim=-1)[:, plain:]], dim=1)

    def local_logits(self, prepared: DeLSPrepared, choice_BK: Tensor) -> Tensor:
        """The local model alone, `[B, K, C]`: what it is trained by. Row 0 knows no drafted token and is not used."""
        return prepared.readout.slots(self._features(prepared, choice_BK))

    def confidence(self, prepared: DeLSPrepared, depth: int, state_BWS: Tensor) -> Tensor | None:
        return None

    def _alpha(self, depth: int) -> float:
        alpha = self.config.alpha
        return alpha[0] if len(alpha) == 1 else alpha[depth - self.config.plain_slots]

    def _features(self, prepared: DeLSPrepared, choice_BK: Tensor) -> Tensor:
        """Features of every slot along given choices."""
        slots, ids = choice_BK.shape[1], prepared.candidates.ids_BKC
        token = choice_BK if ids is None else ids[:, :slots].gather(-1, choice_BK[..., None]).squeeze(-1)
        if self.memory is None:
            return self._feature(torch.cat([prepared.anchor_B[:, None], token[:, :-1]], dim=1), prepared)
        gates = self.memory.gates(F.embedding(token[:, :-1], prepared.embedding_VD))
        states = [self.start(prepared)]
        for k in range(slots - 1):
            gate = gates[:, k : k + 1]
            states.append(self.memory.first(gate) if k == 0 else self.memory.step(gate, states[-1]))
        return self._feature(torch.cat(states, dim=1), prepared)

    def _feature(self, known: Tensor, prepared: DeLSPrepared) -> Tensor:
        """What the readout takes, fp32: from GRU states `[B, W, S]` or previous tokens `[B, W]`."""
        if self.previous is not None:
            return F.embedding(known, self.previous).float()
        assert self.narrow is not None, "a head without a table of its own has factors"
        if self.memory is None:
            known = F.embedding(known, prepared.embedding_VD)
            return F.linear(known.to(self.narrow.dtype), self.narrow.mT).float()
        narrow = F.linear(known.to(self.narrow.dtype), self.narrow).float()
        return F.silu(narrow) if self.config.activation == "silu" else narrow


# ours, theirs: the names inside the two public files, each below the stem of its file
HEAD: Final = "local_head"
UNIGRAM: Final = "loss_mask_unigram.counts"
TENSORS: Final[dict[tuple[Kind, Tables], dict[str, str]]] = {
    ("rnn", "low_rank"): {
        "memory.input_weight": "prefix_gru.weight_ih_l0",
        "memory.state_weight": "prefix_gru.weight_hh_l0",
        "narrow": "rank_proj.weight",
        "readout": "low_rank_lm_head.weight",
    },
    ("rnn", "target_lm_head"): {
        "memory.input_weight": "prefix_gru.weight_ih_l0",
        "memory.state_weight": "prefix_gru.weight_hh_l0",
        "narrow": "rank_proj.weight",
        "widen": "rank_to_hidden.weight",
    },
    ("markov", "low_rank"): {"previous": "embedding_weight", "readout": "lm_head_weight"},
    ("markov", "target_lm_head"): {"narrow": "down_proj", "widen": "up_proj"},
}
RELEASED: Final = 0.3  # alpha and beta of the released heads


def _names(config: DeLSConfig) -> dict[str, str]:
    inside = TENSORS[config.kind, config.tables]
    return {ours: f"{HEAD}.{theirs}" for ours, theirs in inside.items()} | {"counts": UNIGRAM}


def _claims(config: Mapping[str, Any], tensors: frozenset[str]) -> bool:
    return HEAD in config or any(name.startswith(HEAD + ".") for name in tensors)


def _load(source: HeadSource) -> DeLS:
    shape = source.shape
    keys = HeadSource(shape=shape, config=dict(source.take_key(HEAD, dict)))
    kind = _one_of(keys, "local_head_type", get_args(Kind), "rnn")
    for key, expected in (("vocab_size", shape.vocab_size), ("embed_dim", shape.hidden_size)):
        found = keys.take_key(key, int, expected)
        if found != expected:
            raise ValueError(f"config key '{HEAD}.{key}': got {found}, expected the target's {expected}")
    shifted = keys.take_key("shift_label", bool)
    if shape.shifted and not shifted:  # the other way round the authors allow
        raise ValueError(f"config key '{HEAD}.shift_label': got False, expected True: the drafter is shifted")
    config = DeLSConfig(
        hidden_size=shape.hidden_size,
        vocab_size=shape.vocab_size,
        kind=cast("Kind", kind),
        tables=cast("Tables", _one_of(keys, "lm_head_mode", get_args(Tables), "low_rank")),
        gru_size=keys.take_key("gru_hidden_dim", int) if kind == "rnn" else 0,
        rank=keys.take_key("low_rank_dim", int),
        activation=cast("Activation", _one_of(keys, "rank_activation", get_args(Activation), "identity")),
        plain_slots=keys.take_key("pure_draft_prefix_len", int),
        alpha=_weights(keys, "alpha"),
        beta=_weights(keys, "beta"),
        smoothing=keys.take_key("unigram_smoothing", float, 1.0),
        shifted=shifted,
    )
    if keys.config:
        raise ValueError(f"config key {HEAD!r}: got unknown {', '.join(sorted(keys.config))}")
    for name, weights in (("alpha", config.alpha), ("beta", config.beta)):
        if len(weights) not in {1, shape.slots - config.plain_slots}:
            wanted = f"1 or {shape.slots - config.plain_slots}, one per corrected slot"
            raise ValueError(f"config key '{HEAD}.{name}': got {len(weights)} numbers, expected {wanted}")
    module = DeLS(config)
    source.fill(module, {ours: (theirs,) for ours, theirs in _names(config).items()})
    return module


def _one_of(keys: HeadSource, key: str, known: tuple[str, ...], default: str) -> str:
    value = keys.take_key(key, str, default)
    if value not in known:
        raise ValueError(f"config key '{HEAD}.{key}': got {value!r}, expected {' or '.join(known)}")
    return value


def _weights(keys: HeadSource, key: str) -> tuple[float, ...]:
    value = keys.config.pop(key, RELEASED)
    values = value if isinstance(value, list) else [value]
    if not values or not all(
        isinstance(number, int | float) and not isinstance(number, bool) for number in values
    ):
        raise ValueError(f"config key '{HEAD}.{key}': got {value!r}, expected a number or a list of numbers")
    return tuple(float(number) for number in values)


def _save(module: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    assert isinstance(module, DeLS), f"got a {type(module).__name__}"
    config = module.config
    keys: dict[str, Any] = {
        "local_head_type": config.kind,
        "vocab_size": config.vocab_size,
        "embed_dim": config.hidden_size,
        **({"gru_hidden_dim": config.gru_size} if config.kind == "rnn" else {}),
        "low_rank_dim": config.rank,
        "lm_head_mode": config.tables,
        "rank_activation": config.activation,
        "pure_draft_prefix_len": config.plain_slots,
        "shift_label": config.shifted,
        "alpha": config.alpha[0] if len(config.alpha) == 1 else list(config.alpha),
        "beta": config.beta[0] if len(config.beta) == 1 else list(config.beta),
        "unigram_smoothing": config.smoothing,
    }
    state = module.state_dict()
    return {HEAD: keys}, {theirs: state[ours] for ours, theirs in _names(config).items()}


def _new(shape: HeadShape) -> DeLS:
    module = DeLS(
        DeLSConfig(
            hidden_size=shape.hidden_size,
            vocab_size=shape.vocab_size,
            kind="rnn",
            tables="low_rank",
            gru_size=min(1024, 2 * shape.hidden_size),
            rank=min(256, shape.hidden_size),
            activation="identity",
            plain_slots=1,
            alpha=(RELEASED,),
            beta=(RELEASED,),
            smoothing=1.0,
            shifted=shape.shifted,
        )
    )
    module.reset(torch.Generator().manual_seed(0))
    return module


def convert_pt(
    head: Path, unigram: Path, *, vocab_size: int, shifted: bool
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The two public files of a released head as config keys and tensors that can stand beside a drafter's own.

    Only tensors and plain values are unpickled. `shifted` is used where the file does not tell its layout. What training
    left beside the weights, the target's embedding among it, is dropped.
    """
    stored = _read_mapping(head)
    keys = dict(stored.get("model_config", {}))
    state = {
        name: value
        for name, value in stored.get("model_state_dict", stored).items()
        if isinstance(value, Tensor)
    }
    variants = [variant for variant, names in TENSORS.items() if set(names.values()) <= set(state)]
    if len(variants) != 1:
        raise ValueError(f"{head}: got tensors {', '.join(sorted(state))}, expected those of one local head")
    kind, tables = variants[0]
    names = TENSORS[kind, tables]
    gates = state.pop("position_gates", None)
    unknown = sorted(name for name in state if name not in names.values() and not name.startswith("embed"))
    if unknown:
        raise ValueError(f"{head}: got unknown tensors {', '.join(unknown)}")
    if keys.setdefault("vocab_size", vocab_size) != vocab_size:
        raise ValueError(
            f"{head}: got a vocabulary of {keys['vocab_size']}, expected the target's {vocab_size}"
        )
    keys |= {"local_head_type": kind, "lm_head_mode": tables}
    if kind == "rnn":
        rank = state[names["narrow"]].shape[0]
        keys.setdefault("gru_hidden_dim", state[names["memory.state_weight"]].shape[1])
    else:
        rank = state[next(iter(names.values()))].shape[1]
    keys.setdefault("low_rank_dim", rank)
    keys.setdefault("pure_draft_prefix_len", 1)
    keys.setdefault("shift_label", shifted)
    if gates is not None:
        keys |= {"alpha": gates[:, 0].tolist(), "beta": gates[:, 1].tolist()}
    tensors = {f"{HEAD}.{name}": state[name].contiguous() for name in names.values()}
    return {HEAD: keys}, tensors | {UNIGRAM: _read_counts(unigram, vocab_size)}


def _read_mapping(path: Path) -> dict[str, Any]:
    stored = torch.load(path, map_location="cpu", weights_only=True)
    return stored if isinstance(stored, dict) else {}


def _read_counts(path: Path, vocab_size: int) -> Tensor:
    counts = _read_mapping(path).get("counts")
    if not isinstance(counts, Tensor) or counts.ndim != 1:
        raise ValueError(f"{path}: got no vector 'counts', expected the occurrences of every token")
    if counts.shape[0] > vocab_size or counts.min() < 0:
        raise ValueError(f"{path}: got {counts.shape[0]} counts, expected at most {vocab_size}, none below 0")
    return F.pad(counts.to(torch.int64), (0, vocab_size - counts.shape[0]))


SPEC = CorrectorSpec(
    name="dels",
    title="DeLS-Spec",
    paper="arXiv 2607.07409",
    summary="a local language model of the drafted tokens, plugged into any drafter",
    claims=_claims,
    load=_load,
    save=_save,
    new=_new,
)
