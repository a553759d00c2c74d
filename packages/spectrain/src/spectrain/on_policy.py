"""Prompts go in, batches of the target's answers to them come out, each round's drafted by the drafter as it is by then.

This is AdaFlash's loop (arXiv 2607.19223): the engine serves with the current drafter, its answers fill a buffer, the
drafter learns from the buffer, and its new weights are copied into the running engine. Decoding is lossless, so the
answers depend on the prompts and seeds alone; that is why a run that was killed goes on to the same result.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from specmodels.dflash import DFlash
from specrun import Engine, Sampling
from spectrain.data import Batch, PackedRows, Shard, concatenate, read_shard, select, write_shard


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPolicyConfig:
    """How much is answered and how much is learnt from it."""

    prompts: int  # answered in a round
    buffer: int  # latest rounds whose answers are learnt from
    updates: int  # batches after every round
    row: int  # tokens of a packed row
    rows: int  # rows of a batch
    max_new_tokens: int  # of an answer
    temperature: float = 0.0  # of the answers
    seed: int = 0


class Served(NamedTuple):
    """What a round's serving was like."""

    round: int
    tokens: int
    rounds: int  # verification passes
    rows: int  # that the target verified in them

    @property
    def tokens_per_round(self) -> float:
        return self.tokens / max(1, self.rounds)


@torch.no_grad()
def swap_weights(trained: nn.Module, serving: nn.Module) -> None:
    """Copy weights into the memory that a running engine reads; its buffers and captured graphs stay valid."""
    theirs = dict(serving.named_parameters())
    for name, parameter in trained.named_parameters():
        theirs[name].copy_(parameter)


class OnPolicy:
    """The batches of a loop, by number. They have to be asked for in order, as a loop does."""

    def __init__(
        self,
        engine: Engine,
        trained: DFlash,
        prompts: Sequence[list[int]],
        config: OnPolicyConfig,
        folder: Path,
    ) -> None:
        """`engine` has a drafter of its own, of the same shape as `trained`; rounds are kept in `folder`."""
        if len(prompts) < config.prompts:
            raise ValueError(
                f"prompts: got {len(prompts)}, expected at least the {config.prompts} of a round; give more"
            )
        assert engine.parts.drafter is not None, "the engine drafts"
        assert engine.parts.drafter is not trained, "the engine serves with a copy"
        self.engine, self.trained, self.prompts = engine, trained, prompts
        self.config, self.folder = config, folder
        self._round = -1
        self._rows: PackedRows

    def batch(self, number: int) -> Batch:
        """The batch of that number; the first one of a round lets the engine answer."""
        place, step = divmod(number, self.config.updates)
        if place != self._round:
            first = max(0, place - self.config.buffer + 1)
            shards = [self._answers(one) for one in range(first, place + 1)]
            self._rows = PackedRows(
                concatenate(shards),
                batch=self.config.rows,
                row=self.config.row,
                seed=self.config.seed + place,
            )
            self._round = place
        return self._rows.batch(step)

    def served(self) -> list[Served]:
        """What all rounds so far were like."""
        found = sorted(self.folder.glob("[0-9]*/served.json"))
        return [Served(**json.loads(path.read_text(encoding="utf-8"))) for path in found]

    def serve(self) -> None:
        """Let the engine draft with the drafter as it is."""
        assert self.engine.parts.drafter is not None, "checked above"
        swap_weights(self.trained, self.engine.parts.drafter)

    def _answers(self, place: int) -> Shard:
        """The answers of a round, from the disk if they are there."""
        folder = self.folder / f"{place:05d}"
        if not folder.is_dir():
            unfinished = folder.with_suffix(".part")
            shutil.rmtree(unfinished, ignore_errors=True)
            self._answer(place, unfinished)
            # a kill leaves a whole round or none
            unfinished.replace(folder)
        shard = read_shard(folder, "train")
        kept = np.flatnonzero(shard.lengths <= self.config.row)
        return select(shard, kept)

    def _answer(self, place: int, folder: Path) -> None:
        config = self.config
        self.serve()
        start = place * config.prompts
        prompts = [self.prompts[(start + i) % len(self.prompts)] for i in range(config.prompts)]
        sampling = Sampling(
            max_new_tokens=config.max_new_tokens,
            temperature=config.temperature,
            seed=config.seed + place,
        )
        answers = self.engine.generate_batch(prompts, sampling)
        documents = [[*prompt, *answer.token_ids] for prompt, answer in zip(prompts, answers, strict=True)]
        shard = Shard(
            tokens=np.concatenate([np.array(document, dtype=np.uint32) for document in documents]),
            offsets=np.cumsum([0, *map(len, documents)]).astype(np.int64),
            prompt_lengths=np.array([len(prompt) for prompt in prompts], dtype=np.int32),
            domains=np.zeros(len(prompts), dtype=np.uint8),
        )
        write_shard(folder, "train", shard)
        stats = [answer.stats for answer in answers]
        served = Served(
            round=place,
            tokens=sum(one.round_tokens for one in stats),
            rounds=sum(one.rounds for one in stats),
            rows=sum(one.verified_rows for one in stats),
        )
        (folder / "served.json").write_text(json.dumps(served._asdict()) + "\n", encoding="utf-8")
