"""Two processes that share a run compute what one does."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch

from spectrain.workers import Workers

from doubles.family import write_family

RECIPE = """
title = "x"
[target]
model = "{target}"
[drafter]
start = "{drafter}"
[data]
prompts = "{prompts}"
documents = 12
max_new_tokens = 10
row = 64
rows = 1
[objective]
name = "domino"
anchors = 4
[optimiser.drafter]
matrix_lr = 0.02
other_lr = 1e-2
[optimiser.head]
matrix_lr = 0.02
other_lr = 1e-2
[schedule]
steps = 3
warmup = 1
[run]
accumulation = 2
evaluate_every = 2
shard_target = {shard}
"""
PROGRAM = """
import sys
from pathlib import Path
import torch
from spectrain.runs.train import train
from spectrain.workers import workers_of
torch.set_num_threads(1)
with workers_of("cpu") as workers:
    for path in map(Path, sys.argv[1:]):
        folder, quiet = path.with_suffix(""), lambda *_: None
        print(train(path.read_text(), "file.toml", folder, prompts=quiet, report=quiet, workers=workers))
"""


def run(recipes, count):
    """What every process prints, one line for each recipe, under the environment that torchrun would give it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, recipes)],
            env=os.environ
            | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    found = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0] * count, found
    return [line for out, _ in found for line in out.splitlines()]


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    """Each takes one of the two batches of a step; "spread" puts the frozen target's layers on both as well."""
    family = write_family(tmp_path / "family")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"Count to {n}."}) + "\n" for n in range(15)))
    fields = {"target": family.target, "drafter": family.drafter, "prompts": prompts}
    paths = {name: tmp_path / f"{name}.toml" for name in ("one", "shared", "spread")}
    for name, path in paths.items():
        path.write_text(RECIPE.format(shard=str(name == "spread").lower(), **fields))
    outcomes = run([paths["one"]], 1) + run([paths["shared"], paths["spread"]], 2)
    assert len(outcomes) == 5
    assert len(set(outcomes)) == 1
    one, *others = (torch.load(tmp_path / name / "last.pt")["parameters"] for name in paths)
    for other in others:
        assert all(torch.equal(one[name], other[name]) for name in one)
    one, *others = (log_of(tmp_path / name) for name in paths)
    assert [row["step"] for row in one] == [2, 3]
    for other in others:
        assert other == [pytest.approx(row, abs=2e-6) for row in one]


def log_of(folder):
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds_per_step"} for row in rows]


def test_batches_that_cannot_be_shared_are_refused():
    assert list(Workers(rank=1, count=2).share(range(4, 8))) == [5, 7]
    with pytest.raises(ValueError, match="got 3 batches of a step, expected a multiple of the 2 processes"):
        Workers(rank=0, count=2).share(range(3))
