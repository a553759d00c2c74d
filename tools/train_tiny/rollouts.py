"""Let the embedded target answer prompts of its training corpus: the data that its drafter is trained on.

Run from the root of the repository, after export.py: `python tools/train_tiny/rollouts.py`. It needs spectrain and
tqdm. The shards go into build/tiny/rollouts/, in the corpus's format: `train` mixes temperatures, `valid` answers
held-out prompts greedily. More of one kind goes into a folder of its own, from prompts that were not yet used:
`--name rollouts-greedy --domains math code story --greedy --skip 1800 --responses 6000`.
"""

import argparse
import contextlib
import multiprocessing
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from family import BUILD, IM_END, SEED, TARGET_FOLDER
from tqdm import tqdm

from specmodels.checkpoint import load_target
from specmodels.qwen3 import Qwen3
from spectiny.document import TRAINED_DOMAINS
from spectrain.data import Shard, read_shard, shard_hash, write_shard
from spectrain.sampling import Request, sample_responses

LONGEST = 200  # tokens of a response
ROWS = 256  # responses decoded at once
SHARES = {"math": 0.2, "code": 0.2, "story": 0.2, "stdlib": 0.4}
TEMPERATURES = (0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.7, 0.7)  # half of the responses are greedy
VALID = 200  # held-out documents of each domain

Job = tuple[int, list[Request]]
Row = tuple[int, Request]  # domain and request


def distinct(shard: Shard, domain: str, count: int, skip: int = 0) -> list[list[int]]:
    """Prompts of a domain, each once, the first `skip` left out."""
    found: dict[bytes, list[int]] = {}
    for index in np.flatnonzero(shard.domains == TRAINED_DOMAINS.index(domain)).tolist():
        prompt = shard.document(index)[: shard.prompt_lengths[index]]
        found.setdefault(prompt.tobytes(), prompt.tolist())
        if len(found) == skip + count:
            break
    return list(found.values())[skip:]


def train_rows(
    shard: Shard, domains: list[str], count: int, skip: int, temperatures: tuple[float, ...]
) -> list[Row]:
    """Requests of the training split, by the shares of the chosen domains."""
    rows: list[Row] = []
    whole = sum(SHARES[name] for name in domains)
    for name in domains:
        prompts = distinct(shard, name, round(count * SHARES[name] / whole), skip)
        rows += [
            (TRAINED_DOMAINS.index(name), Request(prompt, temperatures[place % len(temperatures)]))
            for place, prompt in enumerate(prompts)
        ]
    return rows


def valid_rows(shard: Shard, domains: list[str]) -> list[Row]:
    """Requests of the held-out split."""
    return [
        (TRAINED_DOMAINS.index(name), Request(prompt, 0.0))
        for name in domains
        for prompt in distinct(shard, name, VALID)
    ]


def load(folder: Path) -> Qwen3:
    """The target as it is shipped: rounded weights, held in fp32."""
    return load_target(folder, dtype=torch.float32)


def answer(folder: Path, job: Job) -> list[list[int]]:
    """Answer one batch of prompts in a process of its own."""
    torch.set_num_threads(1)
    number, requests = job
    generator = torch.Generator().manual_seed(SEED * 1_000_003 + number)
    return sample_responses(load(folder), requests, end=IM_END, longest=LONGEST, generator=generator)


def decode(folder: Path, rows: list[Row], workers: int) -> Shard:
    """Answer everything, in the order of the rows."""
    order = sorted(range(len(rows)), key=lambda place: len(rows[place][1].prompt))
    batches = [order[start : start + ROWS] for start in range(0, len(order), ROWS)]
    jobs = [(number, [rows[place][1] for place in batch]) for number, batch in enumerate(batches)]
    responses: list[list[int]] = [[] for _ in rows]
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        found: Iterator[list[list[int]]]
        if workers > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(workers))
            found = pool.imap(partial(answer, folder), jobs)
        else:
            found = map(partial(answer, folder), jobs)
        for batch, answers in zip(batches, tqdm(found, total=len(jobs), mininterval=5.0), strict=True):
            for place, response in zip(batch, answers, strict=True):
                responses[place] = response
    count = sum(map(len, responses))
    print(f"{count} tokens in {len(rows)} responses, {count / (time.perf_counter() - started):.0f} tokens/s")
    lengths = [
        len(request.prompt) + len(response) for (_, request), response in zip(rows, responses, strict=True)
    ]
    pairs = zip(rows, responses, strict=True)
    return Shard(
        tokens=np.fromiter(
            (i for (_, request), r in pairs for i in (*request.prompt, *r)), np.uint16, sum(lengths)
        ),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        prompt_lengths=np.array([len(request.prompt) for _, request in rows], dtype=np.int32),
        domains=np.array([domain for domain, _ in rows], dtype=np.uint8),
    )


def main() -> None:
    """Answer both splits; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--responses", type=int, default=12_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--target", type=Path, default=TARGET_FOLDER)
    parser.add_argument("--name", default="rollouts", help="folder under build/tiny/")
    parser.add_argument("--domains", nargs="+", default=list(TRAINED_DOMAINS), choices=TRAINED_DOMAINS)
    parser.add_argument("--greedy", action="store_true", help="temperature 0 only, and no held-out answers")
    parser.add_argument("--skip", type=int, default=0, help="prompts of each domain that were used before")
    options = parser.parse_args()
    out = BUILD / options.name
    temperatures = (0.0,) if options.greedy else TEMPERATURES
    corpus = {split: read_shard(BUILD / "corpus", split) for split in ("valid", "train")}
    plan = {} if options.greedy else {"valid": valid_rows(corpus["valid"], options.domains)}
    plan["train"] = train_rows(
        corpus["train"], options.domains, options.responses, options.skip, temperatures
    )
    for split, rows in plan.items():
        shard = decode(options.target, rows, options.workers)
        write_shard(out, split, shard)
        np.save(
            out / f"{split}.temperatures.npy",
            np.array([request.temperature for _, request in rows], np.float32),
        )
        print(split, shard_hash(shard))


if __name__ == "__main__":
    main()
