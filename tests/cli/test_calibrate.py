"""`specrun calibrate`: a file beside the drafter that the next run reads, and clear refusals."""

import json

import pytest
import torch

from specrun import load_engine
from specrun_cli import main as entry


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"Count to {number}."}) + "\n" for number in range(4)))
    return path


def calibrate(family, *extra):
    return entry.main(
        ["calibrate", "--model", str(family.target), "--draft", str(family.drafter), *map(str, extra)]
    )


def test_writes_a_file_that_the_engine_reads(family, prompts, tmp_path, capsys):
    folder = tmp_path / "drafter"
    folder.mkdir()
    for path in family.drafter.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    arguments = ["--prompts", prompts, "--max-new-tokens", 12, "--output", folder]
    assert calibrate(family, *arguments) == 0
    assert "draft temperature under reject" in capsys.readouterr().out
    engine = load_engine(family.target, "ddtree", draft=folder)
    held = json.loads((folder / "calibration.json").read_text())
    assert held["documents"] == 4
    assert engine.parts.coupling is not None
    assert torch.equal(engine.parts.coupling.noise_KX, torch.tensor(held["noise"]))


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--temperature", "0"], "temperature: got 0"),
        (["--method", "ar"], "method: got ar"),
        (["--documents", "0"], "documents: got 0"),
        (["--output", "nowhere"], "output: nowhere is no folder"),
        ([], "prompts: none are known"),
    ],
)
def test_refusals(family, extra, message, capsys):
    assert calibrate(family, *extra) == 2
    assert capsys.readouterr().err.startswith(f"specrun: {message}")


def test_bad_prompt_file(family, tmp_path, capsys):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\nnot json\n')
    assert calibrate(family, "--prompts", path, "--output", tmp_path) == 2
    assert "line 2" in capsys.readouterr().err
    assert not (tmp_path / "calibration.json").exists()
