"""`specrun doctor` finds what is here, names what is missing, and counts memory before it is taken."""

import json
from pathlib import Path

import pytest
import torch

from specmodels import KNOWN_MODELS
from specrun_cli import doctor


@pytest.fixture(autouse=True)
def hub(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def ask(specrun, family):
    return lambda *more: specrun("doctor", "--model", family.target, "--draft", family.drafter, *more)


def test_all_is_here(ask, family):
    outcome = ask("--device", "cpu")
    assert (outcome.code, outcome.err) == (0, "")
    for text in (
        f"torch {torch.__version__}",
        "cpu: ",
        " free of ",
        "together",
        "256 tokens of prompt and answer",
    ):
        assert text in " ".join(outcome.out.split()), text
    assert "MISSING" not in outcome.out
    record = ask("--device", "cpu", "--json").record
    assert record["fits"]
    assert record["parts"]["target"] == {
        "source": str(family.target),
        "folder": str(family.target),
        "command": None,
    }
    assert record["bytes"]["total"] == sum(
        record["bytes"][name] for name in ("target", "drafter", "state", "round")
    )


def test_what_is_missing_comes_with_the_command(specrun, hub):
    outcome = specrun("doctor", "--model", "qwen3-8b", "--method", "dominotree", "--device", "cpu")
    assert outcome.code == 1
    known = KNOWN_MODELS["qwen3-8b"]
    assert f"hf download {known.repo} --revision {known.revision}" in outcome.out
    assert f"hf download {known.drafters['domino'].repo} --revision" in outcome.out
    assert "MISSING, 16.4 GB" in outcome.out
    gated = specrun("doctor", "--model", "llama3.1-8b", "--method", "ar", "--device", "cpu")
    assert "licence to accept at" in " ".join(gated.out.split())
    assert not hub.exists(), "nothing was downloaded"


def test_half_a_download_is_missing(specrun, hub):
    known = KNOWN_MODELS["qwen3-8b"]
    folder = hub / "models--Qwen--Qwen3-8B" / "snapshots" / known.revision
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    record = specrun("doctor", "--model", "qwen3-8b", "--method", "ar", "--device", "cpu", "--json").record
    assert record["parts"]["target"]["folder"] is None


def test_too_much_memory_is_said_before_it_is_taken(ask, monkeypatch):
    fits = ask("--device", "cpu", "--json").record["bytes"]["total"]
    monkeypatch.setattr(doctor, "_memory", lambda: (10 * fits, fits))
    outcome = ask("--device", "cpu")
    assert outcome.code == 1
    assert "TOO MUCH" in outcome.out
    assert ask("--device", "cpu", "--batch-size", 2, "--json").record["bytes"]["state"] > 0


def test_a_folder_that_cannot_be_read_is_an_error(specrun, family, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("[]")
    (tmp_path / "model" / "model.safetensors").touch()
    outcome = specrun("doctor", "--model", tmp_path / "model", "--method", "ar")
    assert (outcome.code, outcome.out) == (2, "")
    assert "got a JSON list, expected an object" in outcome.err


def test_lines_fit(ask):
    lines = ask("--device", "cpu").out.splitlines()
    assert all(len(line) <= 80 or str(Path("/")) in line for line in lines)
    assert json.loads(ask("--json").out)
