"""xPress: a causal mixer over the block, per channel of a low-rank space, whose bias is added to the base logits.

Row k is made of the hidden row, the block's mean row and the token before slot k; rows are mixed causally channel by
channel, pass a gated MLP, and are read out to the vocabulary. All slots can be scored in one call, so a chain is drawn
by a fixed number of Jacobi passes; a tree carries the mixed sums of the rows behind it as its state. (arXiv 2608.02438)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speccorrect.products import Borrowed, Candidates, DraftBlock
from speccorrect.readout import Readout, read
from speccorrect.registry import CorrectorSpec
from speccorrect.source import HeadShape, HeadSource


@dataclass(frozen=True, slots=True, kw_only=True)
class XPressConfig:
    """Sizes of the mixer."""

    shape: HeadShape
    rank: int  # channels, at least 1
    mlp_width: int  # at least 1
    passes: int  # Jacobi passes per chain, at least 1; K of them draw the same chain as slot by slot


@dataclass(frozen=True, slots=True)
class Mixed:
    """What no path changes. In the letters of this file, R is the number of channels."""

    candidates: Candidates
    first: int  # rows before the one that scores slot 0: in the fill-in layout the anchor's, fed the token before it
    fixed_BQR: Tensor  # a row's input without its token
    known_BF: Tensor  # int64: the tokens before slot 0, one per row up to and with `first`
    mixer_QQR: Tensor  # [k, j]: how much of row j reaches row k, the residual path included
    readout: Readout


class XPress(nn.Module):
    """The causal channel mixer."""

    support: int | None = None
    path_free_confidence = False

    def __init__(self, config: XPressConfig) -> None:
        super().__init__()
        self.config = config
        self.passes: int | None = min(config.passes, config.shape.slots)
        vocab, width, rows = config.shape.vocab_size, config.shape.hidden_size, config.shape.block_size
        rank, inner = config.rank, config.mlp_width
        self.token_VR = nn.Parameter(torch.empty(vocab, rank))
        self.readout_VR = nn.Parameter(torch.empty(vocab, rank))
        self.hidden_RD = nn.Parameter(torch.empty(rank, width))
        self.mean_RD = nn.Parameter(torch.empty(rank, width))
        # columns for the hidden row, the mean row and the token, side by side
        self.input_weight = nn.Parameter(torch.empty(rank, 3 * rank))
        self.mixer_RQQ = nn.Parameter(torch.empty(rank, rows, rows))  # as trained; `prepare` alone folds it
        self.gate_weight = nn.Parameter(torch.empty(inner, rank))
        self.up_weight = nn.Parameter(torch.empty(inner, rank))
        self.down_weight = nn.Parameter(torch.empty(rank, inner))

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Draw fresh weights. Nothing is mixed or read out, so the scores are the drafter's own at first."""
        for parameter in self.parameters():
            parameter.normal_(0.0, 0.02, generator=generator)
        self.mixer_RQQ.zero_()
        self.readout_VR.zero_()

    def prepare(self, block: DraftBlock, borrowed: Borrowed, candidates: Candidates) -> Mixed:
        del borrowed
        rows, size = block.hidden_BRD.shape[1], self.config.shape.block_size
        assert rows <= size, f"xpress: a block of {rows} rows, expected at most the {size} of the mixer"
        hidden_BQD = block.hidden_BRD.to(self.hidden_RD.dtype)
        own, mean, _ = self.input_weight.chunk(3, dim=1)
        fixed_BQR = F.linear(F.linear(hidden_BQD, self.hidden_RD), own)
        fixed_BQR = fixed_BQR + F.linear(F.linear(hidden_BQD.mean(dim=1, keepdim=True), self.mean_RD), mean)
        # a shorter block takes the mixer's leading corner: rows are mixed with earlier ones alone
        mixer_RQQ = self.mixer_RQQ[:, :rows, :rows]
        identity = torch.eye(rows, dtype=mixer_RQQ.dtype, device=mixer_RQQ.device)
        known = [block.before_B] * block.first + [block.anchor_B]
        return Mixed(
            candidates=candidates,
            first=block.first,
            fixed_BQR=fixed_BQR,
            known_BF=torch.stack(known, dim=1),
            mixer_QQR=(mixer_RQQ.tril() + identity).permute(1, 2, 0).contiguous(),
            readout=read(self.readout_VR, candidates),
        )

    def start(self, prepared: Mixed) -> Tensor:
        """State: for every slot, the mixed sum of the rows whose tokens are known, flat `[B, 1, K * R]`."""
        count = prepared.first + 1
        x_BQR = prepared.fixed_BQR[:, :count] + self._token_input(prepared.known_BF)
        mixer_KQR = prepared.mixer_QQR[prepared.first :, :count]
        return (mixer_KQR * x_BQR[:, None]).sum(dim=2).flatten(1)[:, None]

    def scores(self, prepared: Mixed, depth: int, state_BWS: Tensor) -> Tensor:
        batch, lanes, _ = state_BWS.shape
        mixed_BWR = state_BWS.view(batch, lanes, -1, self.config.rank)[:, :, depth]
        bias_BWC = prepared.readout.slot(depth, self._transform(mixed_BWR).float())
        return (prepared.candidates.base_BKC[:, depth, None] + bias_BWC).log_softmax(dim=-1)

    def advance(self, prepared: Mixed, depth: int, choice_BW: Tensor, state_BWS: Tensor) -> Tensor:
        row = prepared.first + depth + 1
        if row == prepared.fixed_BQR.shape[1]:
            return state_BWS
        batch, lanes, _ = state_BWS.shape
        token_BWR = self._token_input(prepared.candidates.tokens(depth, choice_BW))
        x_BWR = prepared.fixed_BQR[:, row, None] + token_BWR
        # the new row is handed on to every later row at once; the mixer is zero where it must not go
        sums = state_BWS.view(batch, lanes, -1, self.config.rank)
        return torch.addcmul(sums, prepared.mixer_QQR[prepared.first :, row], x_BWR[:, :, None]).flatten(2)

    def block(self, prepared: Mixed, choice_BK: Tensor) -> Tensor:
        slots, first = choice_BK.shape[1], prepared.first
        ids = prepared.candidates.ids_BKC
        tokens_BK = choice_BK if ids is None else ids[:, :slots].gather(-1, choice_BK[..., None]).squeeze(-1)
        before_BQ = torch.cat([prepared.known_BF, tokens_BK[:, :-1]], dim=1)
        rows = before_BQ.shape[1]
        x_BQR = prepared.fixed_BQR[:, :rows] + self._token_input(before_BQ)
        mixed_BKR = torch.einsum("kqs,bqs->bks", prepared.mixer_QQR[first:rows, :rows], x_BQR)
        bias_BKC = prepared.readout.slots(self._transform(mixed_BKR).float())
        return (prepared.candidates.base_BKC[:, :slots] + bias_BKC).log_softmax(dim=-1)

    def confidence(self, prepared: Mixed, depth: int, state_BWS: Tensor) -> Tensor | None:
        return None

    def _token_input(self, tokens: Tensor) -> Tensor:
        return F.linear(self.token_VR[tokens], self.input_weight[:, 2 * self.config.rank :])

    def _transform(self, x: Tensor) -> Tensor:
        return x + F.linear(
            F.silu(F.linear(x, self.gate_weight)) * F.linear(x, self.up_weight), self.down_weight
        )


# Ours; the authors' name; the one of the package speculators.
NAMES = {
    "token_VR": ("xpress_head.w1.weight", "refiner_head.token_embed.weight"),
    "readout_VR": ("xpress_head.w2.weight", "refiner_head.readout.weight"),
    "hidden_RD": ("xpress_head.down_h.weight", "refiner_head.down_h.weight"),
    "mean_RD": ("xpress_head.down_g.weight", "refiner_head.down_g.weight"),
    "input_weight": ("xpress_head.in_proj.weight", "refiner_head.in_proj.weight"),
    "mixer_RQQ": ("xpress_head.mix.L", "refiner_head.mix_l"),
    "gate_weight": ("xpress_head.mlp.gate_proj.weight", "refiner_head.mlp_gate.weight"),
    "up_weight": ("xpress_head.mlp.up_proj.weight", "refiner_head.mlp_up.weight"),
    "down_weight": ("xpress_head.mlp.down_proj.weight", "refiner_head.mlp_down.weight"),
}
# How a server runs the head, which is not the checkpoint's to say: how many candidates, whether to compile.
SERVING_KEYS = ("xpress_topc", "xpress_candidate_topc", "xpress_compile_head")


def _claims(config: Mapping[str, Any], tensors: frozenset[str]) -> bool:
    """Whether a checkpoint has a mixer, whole or in part."""
    return "xpress_rank" in config or any(
        name.startswith(("xpress_head.", "refiner_head.")) for name in tensors
    )


def _load(source: HeadSource) -> XPress:
    """Take the mixer out of a checkpoint of its authors or of the package speculators."""
    for key in SERVING_KEYS:
        source.config.pop(key, None)
    rank = source.take_positive("xpress_rank", int)
    if "xpress_mlp_ratio" in source.config:
        mlp_width = rank * source.take_positive("xpress_mlp_ratio", int)
    else:
        mlp_width = source.take_positive("xpress_mlp_hidden", int)
    spelling = "num_jacobi_passes" if "num_jacobi_passes" in source.config else "xpress_num_passes"
    passes = source.take_positive(spelling, int)
    rows = source.take_key("xpress_block_size", int, default=source.shape.block_size)
    if rows != source.shape.block_size:
        raise ValueError(f"config key 'xpress_block_size': got {rows}, expected {source.shape.block_size}")
    module = XPress(XPressConfig(shape=source.shape, rank=rank, mlp_width=mlp_width, passes=passes))
    source.fill(module, NAMES, drafted=("readout_VR",))
    return module


def _save(module: nn.Module) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Keys and tensors under the authors' names; the mixer is stored as trained."""
    assert isinstance(module, XPress), type(module)
    config = module.config
    keys = {
        "xpress_rank": config.rank,
        "xpress_mlp_hidden": config.mlp_width,
        "xpress_num_passes": config.passes,
    }
    return keys, {NAMES[ours][0]: tensor for ours, tensor in module.state_dict().items()}


def _new(shape: HeadShape) -> XPress:
    """An untrained mixer of its authors' sizes, less where the target is small."""
    rank = min(256, shape.hidden_size)
    module = XPress(XPressConfig(shape=shape, rank=rank, mlp_width=2 * rank, passes=6))
    module.reset(torch.Generator().manual_seed(0))
    return module


SPEC = CorrectorSpec(
    name="xpress",
    title="xPress",
    paper="arXiv 2608.02438",
    summary="a causal per-channel mixer over the block biases the logits; chains are drawn by Jacobi passes",
    claims=_claims,
    load=_load,
    save=_save,
    new=_new,
)
