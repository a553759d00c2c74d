"""A checkpoint appears whole or not at all."""

import os

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
