"""All memory of a running batch, allocated once. Every buffer names its writers; only prefill and commit move a length.

Letters: B batch rows, T cache capacity, P rows of the longest accepted path, F features, V vocabulary, X stop ids.
"""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from speccorrect.accept import Keys
from speccorrect.law import LawPlan, LawSettings
from speccorrect.tally import Tally
from specmodels.dflash import DFlash
from specmodels.kv import StaticKV
from specmodels.qwen3 import Qwen3
from specrun.config import Sampling

MAX_STOP_IDS = 16


@dataclass(slots=True, kw_only=True)
class DecodeState:
    """Device buffers of a batch. `length_B` is the anchor's position: the rows of the target's cache that count."""

    tokens_BT: Tensor  # int64 prompt and output ids, the anchor at [length]; written by prefill and commit
    length_B: Tensor  # int64; written by prefill and commit, zeroed by admit and retire
    remaining_B: Tensor  # int64 new tokens that may still come; written by admit, prefill and commit
    done_B: Tensor  # bool; written by admit, prefill, commit and retire
    seed_B: Tensor  # int64; written by admit
    request_B: Tensor  # int64 number of the request under its seed; written by admit
    stop_ids_BX: Tensor  # int64, padded with -1; written by admit
    law: LawSettings  # written by admit
    target_kv: StaticKV  # zeroed by admit, written by prefill and verify, compacted by commit
    draft_kv: StaticKV | None  # zeroed by admit, written by prefill and draft
    features_BPF: Tensor  # last committed rows' features; zeroed by admit, written by prefill and commit
    features_start_B: Tensor  # int64 position of the first of them; written by prefill and commit
    features_count_B: Tensor  # int64 how many count; written by prefill and commit
    prompt_BV: Tensor  # bool: occurs in the prompt; written by prefill, read only for penalties
    output_BV: Tensor  # int64 counts in the output; written by prefill and commit, read only for penalties
    predicted_BKX: Tensor  # fp32 sums of a `Tally`, for length policies; zeroed by admit, written by learn
    accepted_BKX: Tensor  # fp32, likewise; zeroed by admit, written by learn
    length_share_B: Tensor  # fp32 moving mean of a length head, -1 for none yet; written by admit and look

    @property
    def capacity(self) -> int:
        return self.tokens_BT.shape[1]

    @property
    def keys(self) -> Keys:
        return Keys(seed_B=self.seed_B, request_B=self.request_B, anchor_B=self.length_B)

    @property
    def tally(self) -> Tally:
        return Tally(predicted_BKX=self.predicted_BKX, accepted_BKX=self.accepted_BKX)

    def anchor_B(self) -> Tensor:
        """The last committed token of every row."""
        return self.tokens_BT.gather(1, self.length_B[:, None]).squeeze(1)

    def row(self, index: int) -> "DecodeState":
        """One batch row as a state of its own; it shares this state's memory."""
        part = slice(index, index + 1)
        law = {item.name: getattr(self.law, item.name)[part] for item in fields(LawSettings)}
        shared = {item.name: getattr(self, item.name) for item in fields(self)}
        views = {name: value[part] for name, value in shared.items() if isinstance(value, Tensor)}
        return replace(
            self,
            law=LawSettings(**law),
            target_kv=self.target_kv.row(index),
            draft_kv=None if self.draft_kv is None else self.draft_kv.row(index),
            **views,
        )

    def clear(self) -> None:
        """Forget all requests."""
        self.done_B.fill_(True)
        self.length_B.zero_()

    def retire(self, row: int) -> None:
        """Take a finished request out of its batch row, which idles on the first cache rows until the next admit."""
        self.done_B[row] = True
        self.length_B[row] = 0

    def keep(self, other: "DecodeState", rows: int) -> None:
        """Take over the first cache rows of another state."""
        for mine, theirs in ((self.target_kv, other.target_kv), (self.draft_kv, other.draft_kv)):
            if mine is not None and theirs is not None:
                mine.key_LBGTH[..., :rows, :] = theirs.key_LBGTH[..., :rows, :]
                mine.value_LBGTH[..., :rows, :] = theirs.value_LBGTH[..., :rows, :]

    def admit(
        self, row: int, sampling: Sampling, stop_ids: tuple[int, ...], request: int, *, kept: int = 0
    ) -> None:
        """Give a batch row to a request; its prompt comes in by prefill, behind `kept` cache rows that hold it already."""
        if len(stop_ids) > MAX_STOP_IDS:
            raise ValueError(f"stop ids: got {len(stop_ids)}, expected at most {MAX_STOP_IDS}")
        self.length_B[row] = 0
        # a masked cache row still takes part as 0 x value: what an earlier request may have overflowed to must go
        for cache in (self.target_kv, self.draft_kv):
            if cache is not None:
                cache.key_LBGTH[:, row, :, kept:].zero_()
                cache.value_LBGTH[:, row, :, kept:].zero_()
        self.features_BPF[row].zero_()
        self.tally.clear(row)
        self.length_share_B[row] = -1.0
        self.remaining_B[row] = sampling.max_new_tokens
        self.done_B[row] = sampling.max_new_tokens == 0
        self.seed_B[row] = sampling.seed
        self.request_B[row] = request
        self.stop_ids_BX[row] = -1
        self.stop_ids_BX[row, : len(stop_ids)] = torch.tensor(stop_ids, dtype=torch.int64)
        self.law.temperature_B[row] = sampling.temperature
        self.law.top_k_B[row] = sampling.top_k
        self.law.top_p_B[row] = sampling.top_p
        self.law.min_p_B[row] = sampling.min_p
        self.law.repetition_B[row] = sampling.repetition_penalty
        self.law.presence_B[row] = sampling.presence_penalty
        self.law.frequency_B[row] = sampling.frequency_penalty


def law_plan(samplings: list[Sampling]) -> LawPlan:
    """The parts of the law that a batch of requests needs."""
    return LawPlan(
        filters=any(sampling.filters for sampling in samplings),
        penalties=any(sampling.penalties for sampling in samplings),
        noise=any(sampling.temperature > 0 for sampling in samplings),
    )


def allocate(
    target: Qwen3, drafter: DFlash | None, *, batch: int, capacity: int, path: int, penalties: bool
) -> DecodeState:
    """Fresh buffers for `batch` rows of at most `capacity` cache rows and paths of at most `path` rows."""
    device = target.embedding.device

    def integers(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=device)

    def reals(value: float) -> Tensor:
        return torch.full((batch,), value, dtype=torch.float32, device=device)

    config = None if drafter is None else drafter.config
    width = 0 if config is None else config.target_hidden_size * len(config.target_layers)
    vocab = target.config.vocab_size if penalties else 0
    tally = Tally.fresh(batch, path - 1, device)
    return DecodeState(
        tokens_BT=integers(batch, capacity),
        length_B=integers(batch),
        remaining_B=integers(batch),
        done_B=torch.ones(batch, dtype=torch.bool, device=device),
        seed_B=integers(batch),
        request_B=integers(batch),
        stop_ids_BX=integers(batch, MAX_STOP_IDS) - 1,
        law=LawSettings(
            temperature_B=reals(0),
            top_k_B=integers(batch),
            top_p_B=reals(1),
            min_p_B=reals(0),
            repetition_B=reals(1),
            presence_B=reals(0),
            frequency_B=reals(0),
        ),
        target_kv=target.new_kv(batch=batch, capacity=capacity),
        draft_kv=None if drafter is None else drafter.new_kv(batch=batch, capacity=capacity),
        features_BPF=torch.zeros(batch, path, width, dtype=target.embedding.dtype, device=device),
        features_start_B=integers(batch),
        features_count_B=integers(batch) + 1,
        prompt_BV=torch.zeros(batch, vocab, dtype=torch.bool, device=device),
        output_BV=integers(batch, vocab),
        predicted_BKX=tally.predicted_BKX,
        accepted_BKX=tally.accepted_BKX,
        length_share_B=reals(-1),
    )
