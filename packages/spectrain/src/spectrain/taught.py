"""Packed documents and anchors go in; drafted blocks come out, with the truth behind them: what every head learns from.

A head sees here what it is given while decoding, and its own `block` scores the truth's path, so what it learns is what
it will do. Letters: B rows of a batch, N anchors of a row, M = B x N blocks, which are a head's batch; others as there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from speccorrect.candidates import select_candidates
from speccorrect.contract import Corrector, Prepared
from speccorrect.products import Borrowed, Candidates, DraftBlock
from specmodels.dflash import DFlash, DFlashConfig
from specmodels.kv import RowsMemory
from specmodels.qwen3 import Qwen3
from spectrain.anchors import Anchors, make_blocks, rows_behind
from spectrain.data import Batch, document_mask
from spectrain.objectives.dflash import decay_weights

P = TypeVar("P", bound=Prepared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taught:
    """Drafted blocks, and what stands behind their anchors in the text."""

    block: DraftBlock  # of M blocks; rows and feature carry gradients to the drafter
    borrowed: Borrowed
    base_MKV: Tensor  # the drafter's logits, with gradients
    label_MK: Tensor  # int64: the text's tokens; any id where they are not trained
    trained_MK: Tensor  # bool: the response's tokens of the anchor's document, a prefix of the slots
    target_MKV: Tensor | None  # the target's logits of the same tokens; None where no objective asks for them
    document_M: Tensor  # int64: the anchor's document

    def weights(self, gamma: float) -> Tensor:
        """What every slot counts `[M, K]`: less the further it stands behind the anchor."""
        slot_K = torch.arange(self.label_MK.shape[1], device=self.label_MK.device)
        return decay_weights(slot_K.expand_as(self.label_MK), self.trained_MK, gamma)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored(Generic[P]):
    """A head's scores along the truth's path."""

    prepared: P
    choice_MK: Tensor  # int64: where the truth stands among the candidates; 0 where it does not
    present_MK: Tensor  # bool: it does
    scores_MKC: Tensor

    @property
    def nll_MK(self) -> Tensor:
        """Minus the truth's log-probability; without meaning where it is absent."""
        return -self.scores_MKC.gather(-1, self.choice_MK[..., None]).squeeze(-1)


class Drafted(NamedTuple):
    """What has to be computed of blocks: the expensive part of `teach`, in a form that a compiler takes and gives."""

    hidden_MRD: Tensor
    feature_MD: Tensor  # the fused feature before the anchor
    base_MKV: Tensor
    label_MR: Tensor  # of all rows, also those that draft nothing
    trained_MR: Tensor
    target_MKV: Tensor | None


def drafted(target: Qwen3, drafter: DFlash, batch: Batch, anchors: Anchors, *, distribution: bool) -> Drafted:
    """Run target and drafter."""
    config, place_BN = drafter.config, anchors.place_BN
    blocks = make_blocks(batch, anchors, config)
    with torch.no_grad():
        memory = RowsMemory(document_mask(batch.document_BS))
        seen = target(batch.token_BS, batch.position_BS, memory, config.target_layers)
        block_BQD = target.embed(blocks.token_BQ)
    context_BSD = drafter.context(seen.features_BQF)
    hidden_BQD = rows_behind(drafter, context_BSD, block_BQD, blocks, batch)
    hidden_MRD = _by_block(hidden_BQD, config.block_size)
    before_BN = (place_BN - 1).clamp_min(0)
    feature_BND = context_BSD.gather(1, before_BN[..., None].expand(-1, -1, context_BSD.shape[-1]))
    logits_MKV = None
    if distribution:
        # the row at the anchor foretells the first drafted token, whatever the layout
        row_BK = (place_BN[..., None] + torch.arange(config.num_drafted, device=place_BN.device)).flatten(1)
        row_BK = row_BK.clamp_max(batch.token_BS.shape[1] - 1)
        row_BKD = seen.hidden_BQD.gather(1, row_BK[..., None].expand(-1, -1, seen.hidden_BQD.shape[-1]))
        logits_MKV = _by_block(target.logits(row_BKD).detach(), config.num_drafted)
    first = 0 if config.shifted else 1
    return Drafted(
        hidden_MRD,
        feature_BND.flatten(0, 1),
        drafter.logits(hidden_MRD[:, first:], target.head_VD.detach()),
        _by_block(blocks.label_BQ, config.block_size),
        _by_block(blocks.trained_BQ, config.block_size),
        logits_MKV,
    )


def _by_block(value_BQ: Tensor, size: int) -> Tensor:
    """`[B, N x R, ...]` as `[B x N, R, ...]`."""
    return value_BQ.unflatten(1, (-1, size)).flatten(0, 1)


def teach(
    target: Qwen3,
    drafter: DFlash,
    batch: Batch,
    anchors: Anchors,
    *,
    distribution: bool,
    run: Callable[..., Drafted] = drafted,
) -> Taught:
    """Draft a block behind every anchor. With `distribution` the target's own logits of the slots come along.

    `run` is `drafted` or a compiled form of it.
    """
    device = target.embedding.device
    batch, anchors = batch.to(device), anchors.to(device)
    config, place_BN = drafter.config, anchors.place_BN
    assert config.draft_vocab_size is None, "heads are trained over the target's whole vocabulary"
    first = 0 if config.shifted else 1
    parts = run(target, drafter, batch, anchors, distribution=distribution)
    before_BN = (place_BN - 1).clamp_min(0)
    # positions restart with every document, so position 0 is what has nothing before it
    begun_BN = batch.position_BS.gather(1, place_BN) > 0
    anchor_BN = batch.token_BS.gather(1, place_BN)
    return Taught(
        block=DraftBlock(
            hidden_BRD=parts.hidden_MRD,
            first=first,
            anchor_B=anchor_BN.flatten(),
            before_B=torch.where(begun_BN, batch.token_BS.gather(1, before_BN), anchor_BN).flatten(),
            feature_BD=parts.feature_MD,
            feature_valid_B=begun_BN.flatten(),
        ),
        borrowed=Borrowed(embedding_VD=target.embedding.detach(), head_VD=target.head_VD.detach()),
        base_MKV=parts.base_MKV,
        label_MK=parts.label_MR[:, first:],
        trained_MK=parts.trained_MR[:, first:].cumprod(dim=1).bool(),
        target_MKV=parts.target_MKV,
        document_M=batch.document_BS.gather(1, place_BN).flatten(),
    )


def teach_text(target: Qwen3, config: DFlashConfig, batch: Batch, anchors: Anchors) -> Taught:
    """Blocks of text alone, for what is trained without target and drafter: all rows and logits are zero."""
    device = target.embedding.device
    batch, anchors = batch.to(device), anchors.to(device)
    blocks = make_blocks(batch, anchors, config)
    first = 0 if config.shifted else 1
    label_MR = _by_block(blocks.label_BQ, config.block_size)
    trained_MR = _by_block(blocks.trained_BQ, config.block_size)
    anchor_M = batch.token_BS.gather(1, anchors.place_BN).flatten()
    zero_1, count = torch.zeros(1, device=device), anchor_M.shape[0]
    label_MK = label_MR[:, first:]
    return Taught(
        block=DraftBlock(
            hidden_BRD=zero_1.expand(count, config.block_size, config.hidden_size),
            first=first,
            anchor_B=anchor_M,
            before_B=anchor_M,
            feature_BD=zero_1.expand(count, config.hidden_size),
            feature_valid_B=torch.zeros_like(anchor_M, dtype=torch.bool),
        ),
        borrowed=Borrowed(embedding_VD=target.embedding.detach(), head_VD=target.head_VD.detach()),
        base_MKV=zero_1.expand(*label_MK.shape, target.config.vocab_size),
        label_MK=label_MK,
        trained_MK=trained_MR[:, first:].cumprod(dim=1).bool(),
        target_MKV=None,
        document_M=batch.document_BS.gather(1, anchors.place_BN).flatten(),
    )


def offer(taught: Taught, count: int | None, *, inject: bool = False) -> Candidates:
    """The drafter's best tokens as candidates, or all; with `inject` the truth takes the weakest one's place if it is missing."""
    candidates = select_candidates(taught.base_MKV, count)
    ids_MKC = candidates.ids_BKC
    if ids_MKC is None or not inject:
        return candidates
    label_MK1 = taught.label_MK[..., None]
    missing_MK1 = ~(ids_MKC == label_MK1).any(dim=-1, keepdim=True)
    last_MK1 = torch.where(missing_MK1, label_MK1, ids_MKC[..., -1:])
    return _listed(taught, torch.cat([ids_MKC[..., :-1], last_MK1], dim=-1), candidates.lse_BK)


def offer_truth(taught: Taught) -> Candidates:
    """The truth alone: enough for a head whose scores are shares of the whole vocabulary, and far less to compute."""
    lse_MK = torch.logsumexp(taught.base_MKV.float(), dim=-1)
    return _listed(taught, taught.label_MK[..., None], lse_MK)


def _listed(taught: Taught, ids_MKC: Tensor, lse_MK: Tensor) -> Candidates:
    return Candidates(ids_BKC=ids_MKC, base_BKC=taught.base_MKV.gather(-1, ids_MKC).float(), lse_BK=lse_MK)


def score(corrector: Corrector[P], taught: Taught, candidates: Candidates) -> Scored[P]:
    """Score the truth's path. Behind a slot whose truth is no candidate the path is another one."""
    prepared = corrector.prepare(taught.block, taught.borrowed, candidates)
    ids_MKC = prepared.candidates.ids_BKC
    if ids_MKC is None:
        choice_MK, present_MK = taught.label_MK, torch.ones_like(taught.trained_MK)
    else:
        hit_MKC = ids_MKC == taught.label_MK[..., None]
        choice_MK, present_MK = hit_MKC.int().argmax(dim=-1), hit_MKC.any(dim=-1)
    return Scored(
        prepared=prepared,
        choice_MK=choice_MK,
        present_MK=present_MK,
        scores_MKC=corrector.block(prepared, choice_MK),
    )


def confidences(corrector: Corrector[Any], scored: Scored[Any]) -> Tensor:
    """Logits `[M, K]` of acceptance along the truth's path, of a head that has such an output."""
    rows, state = [], corrector.start(scored.prepared)
    for depth in range(scored.choice_MK.shape[1]):
        logit_M1 = corrector.confidence(scored.prepared, depth, state)
        assert logit_M1 is not None, "this head foretells no acceptance"
        rows.append(logit_M1)
        state = corrector.advance(scored.prepared, depth, scored.choice_MK[:, depth : depth + 1], state)
    return torch.cat(rows, dim=1)


def base_nll(taught: Taught) -> Tensor:
    """Minus the drafter's own log-probabilities `[M, K]` of the truth, in fp32."""
    logits_NV = taught.base_MKV.flatten(0, 1).float()
    return F.cross_entropy(logits_NV, taught.label_MK.flatten(), reduction="none").view_as(taught.label_MK)
