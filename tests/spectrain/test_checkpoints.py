"""A checkpoint appears whole or not at all."""

import os
import subprocess
import sys

import pytest
import torch

from spectrain.checkpoints import RunState, load_run, save_run


def state(step: int) -> RunState:
    return RunState(step, 7, {"w": torch.full((3,), float(step))}, [{"state": {}}], {})


def test_a_failed_save_leaves_the_old_file_and_no_debris(tmp_path, monkeypatch):
    path = tmp_path / "last.pt"
    save_run(path, state(1))

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        save_run(path, state(2))
    monkeypatch.undo()
    assert load_run(path).step == 1
    assert [file.name for file in tmp_path.iterdir()] == ["last.pt"]


def test_a_save_that_breaks_midway_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "last.pt"
    save_run(path, state(1))

    def half(content, file):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        save_run(path, state(2))
    monkeypatch.undo()
    assert torch.equal(load_run(path).parameters["w"], torch.ones(3))
    assert [file.name for file in tmp_path.iterdir()] == ["last.pt"]


def test_round_trip(tmp_path):
    save_run(tmp_path / "deep" / "last.pt", state(4))
    found = load_run(tmp_path / "deep" / "last.pt")
    assert (found.step, found.seed, found.optimiser, found.average) == (4, 7, [{"state": {}}], {})


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from spectrain.checkpoints import RunState, load_run, save_run

path, draw = Path(sys.argv[1]), random.Random(0)

def state(step):
    return RunState(step, 7, {"w": torch.full((200_000,), float(step))}, [], {})

save_run(path, state(0))
for trial in range(20):
    ready, say = os.pipe()
    child = os.fork()
    if child == 0:
        step = load_run(path).step
        while True:
            step += 1
            started = time.perf_counter()
            save_run(path, state(step))
            os.write(say, f"{time.perf_counter() - started:.6f}".encode())
    os.close(say)  # so that a child that dies by itself is noticed
    # how long a save takes, after the first one; the kill falls into one of the next three
    time.sleep(draw.uniform(0, 3) * float(os.read(ready, 8)))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = load_run(path)
    assert (found.parameters["w"] == found.step).all(), trial
    print(found.step, path.with_name("last.pt.part").exists())
"""


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    """Twenty runs that do nothing but save are killed at random moments; a fork costs no start of torch."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path / "last.pt")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(rows) == 20
    steps = [int(step) for step, _ in rows]
    assert steps == sorted(steps)
    assert steps[-1] >= 20, "every run saved"
    # otherwise no kill fell into a write, and nothing was shown
    assert any(left == "True" for _, left in rows)


FULL = """
import resource, signal, sys
from pathlib import Path
import torch
from spectrain.checkpoints import RunState, save_run

resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    save_run(Path(sys.argv[1]), RunState(2, 7, {"w": torch.zeros(200_000)}, [], {}))
except OSError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_old_checkpoint_and_no_debris(tmp_path):
    """The system refuses to write beyond a limit, in the middle of the file, as a full disk does."""
    path = tmp_path / "last.pt"
    save_run(path, state(1))
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == f"[Errno 27] File too large: '{path}'", done.stderr
    assert load_run(path).step == 1
    assert [file.name for file in tmp_path.iterdir()] == ["last.pt"]
