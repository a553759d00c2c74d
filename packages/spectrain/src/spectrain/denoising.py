"""Documents go in, the loss of a block-diffusion model comes out: masked tokens to find, wrong tokens to mend.

Every document is laid out twice: clean rows, which later blocks may see, and noisy rows of the blocks that hold its
response. It does not know which documents there are, or what becomes of the gradients.
Letters: B documents, S places of their two copies, N the noisy places of responses, V vocabulary.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from specmodels.kv import RowsMemory
from specmodels.llada2 import Llada2
from spectrain.data import PADDING, Shard
from spectrain.loop import Loss

POOL = 16
"""Batches over which documents are sorted by length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How noisy rows are made and what they weigh in the loss."""

    wrong: float = 0.2  # largest share of a document's visible tokens that are replaced
    nothing_known: float = 0.15  # share of blocks that are masked as a whole: how decoding finds them
    kept_weight: float = 0.1  # of visible tokens that are right; masked and wrong ones weigh 1
    own_from: int = 32  # in blocks of at least this size the model's own guesses may be the next input
    own_share: float = 1.0  # of those batches, the share in which they are


class DenoisingBatch(NamedTuple):
    """One document a row, in one attention block size."""

    token_BS: Tensor  # int64, the truth
    position_BS: Tensor  # int64 within the document; PADDING behind its two copies
    noisy_BS: Tensor  # bool: of the noisy copy
    answer_BS: Tensor  # bool: noisy and of a response, its filling with end tokens included
    block: int  # positions of one attention block


@dataclass(frozen=True, slots=True)
class BlockStages:
    """The block sizes of a run: each stage ends before a batch and mixes sizes by weight; the last one never ends."""

    stages: tuple[tuple[float, Mapping[int, float]], ...]

    def block(self, number: int, seed: int) -> int:
        """The size for a batch, the same whenever it is asked for."""
        sizes = next(sizes for end, sizes in self.stages if number < end)
        weights = np.array(list(sizes.values()))
        generator = np.random.default_rng((seed, number, 1))
        return int(generator.choice(list(sizes), p=weights / weights.sum()))


class DenoisingRows:
    """Batches of documents of about one length, in an order drawn anew for every epoch."""

    def __init__(
        self, shard: Shard, *, batch: int, seed: int, fill: int, end_id: int, stages: BlockStages
    ) -> None:
        """Responses are filled with `end_id` up to a multiple of `fill` positions."""
        self.shard, self.batch_rows, self.seed = shard, batch, seed
        self.fill, self.end_id, self.stages = fill, end_id, stages
        self.num_batches = len(shard) // batch

    def batch(self, number: int) -> DenoisingBatch:
        """The batch of a number, the same whenever it is asked for."""
        epoch, place = divmod(number, self.num_batches)
        generator = np.random.default_rng((self.seed, epoch))
        order = generator.permutation(len(self.shard))[: self.num_batches * self.batch_rows]
        # neighbours by length inside a pool share a batch: little padding, and still another mix in every epoch
        pools = np.array_split(order, max(1, self.num_batches // POOL))
        sorted_order = np.concatenate([pool[np.argsort(self.shard.lengths[pool])] for pool in pools])
        place = generator.permutation(self.num_batches)[place]
        chosen = sorted_order[place * self.batch_rows : (place + 1) * self.batch_rows]
        return self.lay_out(chosen.tolist(), self.stages.block(number, self.seed))

    def lay_out(self, documents: list[int], block: int) -> DenoisingBatch:
        """Clean and noisy copies of some documents side by side, for one block size."""
        copies = [self._copies(index, block) for index in documents]
        table = np.zeros((4, len(copies), max(copy.shape[1] for copy in copies)), dtype=np.int64)
        table[1] = PADDING
        for row, copy in enumerate(copies):
            table[:, row, : copy.shape[1]] = copy
        token, position, noisy, answer = torch.from_numpy(table)
        return DenoisingBatch(token, position, noisy.bool(), answer.bool(), block)

    def _copies(self, index: int, block: int) -> npt.NDArray[np.int64]:
        """Token, position, noisy and answer of all places of a document's clean and noisy copies."""
        ids, prompt = self.shard.document(index), int(self.shard.prompt_lengths[index])
        length = -(-len(ids) // self.fill) * self.fill
        tokens = np.full(length, self.end_id, dtype=np.int64)
        tokens[: len(ids)] = ids
        positions = np.arange(length)
        # nothing sees the last block's clean copy, and there is nothing to find in blocks of the prompt alone
        clean = positions[: (length - 1) // block * block]
        noisy = positions[prompt // block * block :]
        place = np.concatenate([clean, noisy])
        copy = np.repeat([0, 1], [len(clean), len(noisy)])
        return np.stack([tokens[place], place, copy, copy * (place >= prompt)])


def denoising_mask(batch: DenoisingBatch) -> Tensor:
    """`[B, S, S]` bool: clean places see clean ones up to their block; noisy ones see their block, and earlier clean ones."""
    # padding gets a block of its own, before all others
    block_BS = batch.position_BS.div(batch.block, rounding_mode="floor")
    earlier = block_BS[:, None, :] < block_BS[:, :, None]
    own = block_BS[:, None, :] == block_BS[:, :, None]
    from_noisy, to_noisy = batch.noisy_BS[:, :, None], batch.noisy_BS[:, None, :]
    held = (batch.position_BS >= 0)[:, None, :]
    return (held & ~to_noisy & earlier) | (own & (from_noisy == to_noisy))


def corrupted(batch: DenoisingBatch, noise: Noise, mask_id: int, generator: torch.Generator) -> Tensor:
    """The tokens with noise on the answers: masks at a rate drawn per block, wrong tokens at one drawn per document.

    A wrong token is one that stands elsewhere in the batch: what a draft gets wrong are numbers and names, not glyphs.
    """
    rows, places = batch.token_BS.shape

    def uniform(columns: int) -> Tensor:
        return torch.rand(rows, columns, generator=generator)

    block_BS = batch.position_BS.clamp_min(0) // batch.block
    blocks = int(block_BS.max()) + 1
    rate_BS = uniform(blocks).gather(1, block_BS)
    nothing_known_BS = uniform(blocks).gather(1, block_BS) < noise.nothing_known
    masked_BS = batch.answer_BS & (nothing_known_BS | (uniform(places) < rate_BS))
    wrong_BS = batch.answer_BS & (uniform(places) < noise.wrong * uniform(1))
    pool = batch.token_BS[batch.answer_BS]
    other_BS = pool[torch.randint(len(pool), (rows, places), generator=generator)]
    return torch.where(wrong_BS, other_BS, batch.token_BS).masked_fill(masked_BS, mask_id)


def denoising_objective(model: Llada2, noise: Noise) -> Callable[[DenoisingBatch, torch.Generator], Loss]:
    """The objective of a run: the masked answers, then the model's own guesses at them with their errors."""
    mask_id = model.config.mask_token_id

    def objective(batch: DenoisingBatch, generator: torch.Generator) -> Loss:
        memory = RowsMemory(denoising_mask(batch))
        seen_BS = corrupted(batch, noise, mask_id, generator)
        logits_NV = _answer_logits(model, batch, seen_BS, memory)
        loss, metrics = _loss(logits_NV, batch, seen_BS, mask_id, noise)
        turn = float(torch.rand((), generator=generator)) < noise.own_share
        if batch.block < noise.own_from or not turn:
            return Loss(loss, metrics)
        guessed_BS = own_guesses(batch, seen_BS, logits_NV.detach(), mask_id, generator)
        again, own = _loss(
            _answer_logits(model, batch, guessed_BS, memory), batch, guessed_BS, mask_id, noise
        )
        return Loss((loss + again) / 2, metrics | {f"own_{name}": value for name, value in own.items()})

    return objective


def own_guesses(
    batch: DenoisingBatch, seen_BS: Tensor, logits_NV: Tensor, mask_id: int, generator: torch.Generator
) -> Tensor:
    """The noisy tokens with most masks replaced by draws from the model's guesses: its drafts with their own errors."""
    share = torch.rand((), generator=generator) + 0.5  # half of the batches leave no mask at all
    filled_N = torch.rand(len(logits_NV), generator=generator) < share
    # the largest p / e, with e exponential, falls on every token as often as p says
    chance_NV = logits_NV.float().softmax(dim=-1)
    chance_NV[:, mask_id] = 0.0
    guess_N = (chance_NV / torch.empty_like(chance_NV).exponential_(generator=generator)).argmax(dim=-1)
    seen_N = seen_BS[batch.answer_BS]
    seen_N = torch.where((seen_N == mask_id) & filled_N, guess_N, seen_N)
    return seen_BS.masked_scatter(batch.answer_BS, seen_N)


def _answer_logits(model: Llada2, batch: DenoisingBatch, seen_BS: Tensor, memory: RowsMemory) -> Tensor:
    return model.logits(model(seen_BS, batch.position_BS, memory)[batch.answer_BS])


def _loss(
    logits_NV: Tensor, batch: DenoisingBatch, seen_BS: Tensor, mask_id: int, noise: Noise
) -> tuple[Tensor, dict[str, Tensor]]:
    """The weighted cross entropy, and its means over masked and over wrong tokens."""
    label_N, seen_N = batch.token_BS[batch.answer_BS], seen_BS[batch.answer_BS]
    entropy_N = F.cross_entropy(logits_NV.float(), label_N, reduction="none")
    masked_N = seen_N == mask_id
    wrong_N = ~masked_N & (seen_N != label_N)
    weight_N = torch.where(masked_N | wrong_N, 1.0, noise.kept_weight)
    found = entropy_N.detach()
    return (entropy_N * weight_N).sum() / weight_N.sum(), {
        "masked": _mean(found, masked_N),
        "wrong": _mean(found, wrong_N),
    }


def _mean(values_N: Tensor, chosen_N: Tensor) -> Tensor:
    return (values_N * chosen_N).sum() / chosen_N.sum().clamp_min(1)
