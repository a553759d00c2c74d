"""The data part of a recipe goes in, documents to train on and documents to measure on come out.

Answers are decoded by the engine in parts, and every part is a folder of its own that appears whole, so making them goes
on where it stopped.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specrun import Engine, Sampling
from spectrain.data import Shard, concatenate, read_shard, select, write_shard
from spectrain.runs.recipe import DataPart

PART = 64
"""Answers of a part; they are decoded side by side."""

Step = Callable[[int, int], None]
"""Told how much of how much is done."""


class Prompt(NamedTuple):
    """One prompt of a conversation."""

    text: str
    domain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What a run learns from and is measured on."""

    train: Shard
    temperature_D: Tensor  # at which each training answer was drawn
    valid: Shard  # greedy answers
    domains: tuple[str, ...]


def read_prompts(path: Path) -> list[Prompt]:
    """Prompts from JSON lines with a key `prompt` and, if wanted, `domain`."""
    if not path.is_file():
        raise ValueError(f"prompts: got {path}, which is no file; check the path")
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            found.append(Prompt(str(row["prompt"]), str(row.get("domain", "text"))))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"prompts: {path} line {number} is no JSON object with a key prompt; mend the line"
            ) from error
    return found


def answer_prompts(
    engine: Engine, prompts: Sequence[Prompt], part: DataPart, folder: Path, step: Step
) -> None:
    """Write the splits `train` and `valid` of the target's answers into `folder`; each prompt is used once.

    The engine decodes plainly or by a drafter: the answers are the same.
    """
    distinct = list(dict.fromkeys(prompts))
    count = min(part.held_out, len(distinct) // 5)
    if count == 0:
        raise ValueError(
            f"prompts: got {len(distinct)} different ones, expected at least 5, to hold one out; give more"
        )
    # spread over the list, which may be sorted by domain
    held = set(np.linspace(0, len(distinct) - 1, count).round().astype(int).tolist())
    valid = [prompt for place, prompt in enumerate(distinct) if place in held]
    train = [prompt for place, prompt in enumerate(distinct) if place not in held]
    order = np.random.default_rng(0).permutation(len(train))[: part.documents]
    train = [train[place] for place in sorted(order.tolist())]
    domains = sorted({prompt.domain for prompt in distinct})
    temperature = [part.temperatures[place % len(part.temperatures)] for place in range(len(train))]
    plan = (("valid", valid, [0.0] * len(valid)), ("train", train, temperature))
    done, total = 0, len(valid) + len(train)
    for split, rows, temperatures in plan:
        shards = []
        for start in range(0, len(rows), PART):
            chosen, heat = rows[start : start + PART], temperatures[start : start + PART]
            place = folder / "parts" / f"{split}-{start // PART:05d}"
            if not place.is_dir():
                shard = _answered(engine, chosen, heat, part, domains, number=start // PART)
                unfinished = place.with_suffix(".part")
                write_shard(unfinished, split, shard)
                unfinished.replace(place)
            shards.append(read_shard(place, split))
            done += len(chosen)
            step(done, total)
        write_shard(folder, split, concatenate(shards))
        np.save(folder / f"{split}.temperatures.npy", np.array(temperatures, dtype=np.float32))
    # the last file says that all are there
    (folder / "domains.json").write_text(json.dumps(domains) + "\n", encoding="utf-8")
    shutil.rmtree(folder / "parts")


def _answered(
    engine: Engine,
    prompts: Sequence[Prompt],
    temperatures: Sequence[float],
    part: DataPart,
    domains: list[str],
    *,
    number: int,
) -> Shard:
    ids = [engine.chat_ids(prompt.text, thinking=part.thinking) for prompt in prompts]
    samplings = [
        Sampling(
            max_new_tokens=part.max_new_tokens,
            temperature=heat,
            top_k=part.top_k,
            top_p=part.top_p,
            seed=number,
        )
        for heat in temperatures
    ]
    answers = [answer.token_ids for answer in engine.generate_batch(ids, samplings)]
    documents = [[*prompt, *answer] for prompt, answer in zip(ids, answers, strict=True)]
    return Shard(
        tokens=np.concatenate([np.array(document, dtype=np.uint32) for document in documents]),
        offsets=np.cumsum([0, *map(len, documents)]).astype(np.int64),
        prompt_lengths=np.array([len(prompt) for prompt in ids], dtype=np.int32),
        domains=np.array([domains.index(prompt.domain) for prompt in prompts], dtype=np.uint8),
    )


def read_corpus(folder: Path, part: DataPart, vocab_size: int) -> Corpus:
    """Read both splits and refuse what nothing can be learnt from."""
    train, valid = (read_shard(folder, split) for split in ("train", "valid"))
    for split, shard in (("train", train), ("valid", valid)):
        what = f"shard {split} in {folder}"
        if len(shard) == 0:
            raise ValueError(f"{what}: got no documents, expected some; make the data again")
        largest = int(shard.tokens.max(initial=0))
        if largest >= vocab_size:
            raise ValueError(
                f"{what}: got the token {largest}, expected below {vocab_size}; it is of a model with another vocabulary"
            )
        if not (shard.lengths - shard.prompt_lengths >= 2).any():
            raise ValueError(
                f"{what}: got no answer of two tokens, so nothing is supervised; check the lengths of the prompts"
            )
    heat = folder / "train.temperatures.npy"
    temperature_D = torch.from_numpy(np.load(heat)) if heat.is_file() else torch.zeros(len(train))
    if len(temperature_D) != len(train):
        raise ValueError(
            f"{heat}: got {len(temperature_D)} values, expected {len(train)}; make the data again"
        )
    names = folder / "domains.json"
    last = int(max(train.domains.max(), valid.domains.max()))
    domains = (
        json.loads(names.read_text(encoding="utf-8"))
        if names.is_file()
        else [f"domain {place}" for place in range(last + 1)]
    )
    kept = np.flatnonzero(train.lengths <= part.row)
    # shards are sorted by domain
    kept = np.sort(np.random.default_rng(0).permutation(kept)[: part.documents])
    held = np.flatnonzero(valid.lengths <= part.row)
    # as many of every domain
    share = -(-part.held_out // len(domains))
    held = np.concatenate([held[valid.domains[held] == place][:share] for place in range(len(domains))])
    if len(kept) == 0 or len(held) == 0:
        raise ValueError(f"data.row: got {part.row} tokens, and no document is that short; use longer rows")
    return Corpus(
        train=select(train, kept),
        temperature_D=temperature_D[kept],
        valid=select(valid, held),
        domains=tuple(domains),
    )
