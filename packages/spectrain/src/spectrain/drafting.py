"""A frozen target, a drafter and packed documents go in; the loss that trains the drafter, and its acceptance, come out."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from specmodels.dflash import DFlash
from specmodels.kv import RowsMemory
from specmodels.qwen3 import Qwen3
from spectrain.anchors import Anchors, Blocks, anchor_candidates, draft_rows, make_blocks, sample_anchors
from spectrain.data import Batch, Shard, document_mask, pack
from spectrain.loop import Loss
from spectrain.objectives.dflash import accepted, block_loss, decay_weights


@torch.no_grad()
def features(target: Qwen3, drafter: DFlash, batch: Batch) -> Tensor:
    """The target's features `[B, S, F]` of packed rows, as decoding would have them."""
    memory = RowsMemory(document_mask(batch.document_BS))
    return target(batch.token_BS, batch.position_BS, memory, drafter.config.target_layers).features_BQF


def dflash_objective(
    target: Qwen3,
    drafter: DFlash,
    *,
    anchors: int,
    gamma: float,
    compiled: bool,
    chunk: int | None = None,
) -> Callable[[Batch, torch.Generator], Loss]:
    """The objective of a run that trains `drafter` for a frozen `target`; embedding and head stay the target's.

    `anchors` blocks of every row are drawn anew for each batch. Compiled, all batches must have one shape.
    """
    head_VD = target.head_VD.detach()

    def loss_of(blocks: Blocks, batch: Batch) -> Tensor:
        # inside, so that the compiler drops the target's layers above the last tap
        features_BSF = features(target, drafter, batch)
        block_BQD = target.embed(blocks.token_BQ).detach()
        hidden_BQD = draft_rows(drafter, features_BSF, block_BQD, blocks, batch)
        weight_BQ = decay_weights(blocks.slot_BQ, blocks.trained_BQ, gamma)
        return block_loss(
            hidden_BQD.flatten(0, 1),
            blocks.label_BQ.flatten(),
            weight_BQ.flatten(),
            lambda hidden: drafter.logits(hidden, head_VD),
            chunk=chunk,
        )

    run = torch.compile(loss_of) if compiled else loss_of

    def objective(batch: Batch, generator: torch.Generator) -> Loss:
        places = sample_anchors(anchor_candidates(batch), anchors, generator)
        return Loss(run(make_blocks(batch, places, drafter.config), batch), {})

    return objective


class Acceptance(NamedTuple):
    """Counts of one domain's greedy rounds."""

    tokens: int  # response tokens after the first one, which the prefill yields
    rounds: int  # drafts and verifications that it takes to emit them

    @property
    def tokens_per_round(self) -> float:
        """Accepted drafts plus the target's own token, over all rounds."""
        return self.tokens / max(1, self.rounds)


@torch.no_grad()
def greedy_acceptance(
    target: Qwen3, drafter: DFlash, shard: Shard, domains: Sequence[str]
) -> dict[str, Acceptance]:
    """Rounds that greedy decoding of the shard's responses would take, by domain.

    The responses must be the target's own greedy ones: then a draft is accepted where it equals the response, and the
    walk over a block's acceptances at every place is the decoding itself.
    """
    counts = dict.fromkeys(domains, Acceptance(0, 0))
    for index in range(len(shard)):
        ids = len(shard.document(index))
        batch = pack(shard, [[index]], ids)
        place_BN = anchor_candidates(batch).nonzero()[:, 1][None]
        if place_BN.numel() == 0:
            continue
        anchors = Anchors(place_BN, torch.ones_like(place_BN, dtype=torch.bool))
        accepted_N = _accepted(target, drafter, batch, anchors)
        place, last, rounds = int(place_BN[0, 0]), ids - 1, 0
        first = place
        while place < last:
            place += int(accepted_N[place - first]) + 1
            rounds += 1
        domain = domains[int(shard.domains[index])]
        counts[domain] = Acceptance(counts[domain].tokens + last - first, counts[domain].rounds + rounds)
    return counts


def _accepted(target: Qwen3, drafter: DFlash, batch: Batch, anchors: Anchors, piece: int = 24) -> Tensor:
    """Accepted drafts of every anchor of a single row, in pieces: attention grows with the square of the anchors."""
    features_BSF = features(target, drafter, batch)
    found = []
    for place_BN, kept_BN in zip(
        anchors.place_BN.split(piece, 1), anchors.kept_BN.split(piece, 1), strict=True
    ):
        blocks = make_blocks(batch, Anchors(place_BN, kept_BN), drafter.config)
        hidden_BQD = draft_rows(drafter, features_BSF, target.embed(blocks.token_BQ), blocks, batch)
        draft_BQ = drafter.logits(hidden_BQD, target.head_VD).argmax(dim=-1)
        right_BQ = (draft_BQ == blocks.label_BQ) & blocks.trained_BQ
        right_NK = right_BQ.view(-1, drafter.config.block_size)
        found.append(accepted(right_NK if drafter.config.shifted else right_NK[:, 1:]))
    return torch.cat(found)
