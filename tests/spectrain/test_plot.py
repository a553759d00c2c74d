"""Curves are read from logs, and the picture is a PNG."""

import json

import pytest

from spectrain.plot import curves, plot, read_log


def write(path):
    rows = [
        {"step": 10, "loss": 2.0, "factor": 1.0},
        {"step": 20, "loss": 1.5, "factor": 1.0, "math": 0.7},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_curves_by_name(tmp_path):
    found = curves(read_log(write(tmp_path / "log.jsonl")))
    assert found == {"loss": [(10, 2.0), (20, 1.5)], "math": [(20, 0.7)]}


def test_plot_writes_a_png(tmp_path):
    pytest.importorskip("matplotlib")
    plot({"target": write(tmp_path / "log.jsonl")}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
