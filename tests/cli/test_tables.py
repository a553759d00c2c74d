"""What `specrun models` and `specrun methods` list."""

import json
from pathlib import Path

import pytest

from specmodels import KNOWN_MODELS
from specrun import catalogue as listed
from specrun.embedded import EmbeddedModel
from specrun.methods import methods


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def embedded(monkeypatch, family):
    model = EmbeddedModel(target=family.target, drafters={"none": family.drafter})
    monkeypatch.setattr(listed, "embedded_models", lambda: {"tiny": model})


@pytest.mark.parametrize("command", ["models", "methods"])
def test_tables_fit_eighty_columns(specrun, command):
    outcome = specrun(command)
    assert (outcome.code, outcome.err) == (0, "")
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert outcome.out.isascii()


def test_every_method_is_listed(specrun, embedded):
    entries = specrun("methods", "--json").record["methods"]
    assert [entry["name"] for entry in entries] == list(methods())
    by_name = {entry["name"]: entry for entry in entries}
    assert [name for name, entry in by_name.items() if entry["embedded"]] == ["ar", "dflash", "ddtree"]
    assert by_name["ar"]["head"] is None
    assert by_name["dflash"]["accept"] == ["match", "reject"]
    assert by_name["ddtree"]["accept"] == ["match"]
    assert by_name["ddtree"]["tree_budget"] == 32
    drafter = KNOWN_MODELS["qwen3-8b"].drafters["dflash"]
    assert by_name["ddtree"]["checkpoints"]["qwen3-8b"] == f"{drafter.repo}@{drafter.revision}"
    lines = specrun("methods").out.splitlines()
    assert [line.split()[0] for line in lines[1 : len(entries) + 1]] == list(methods())


def test_every_model_is_listed(specrun, embedded, family):
    outcome = specrun("models", "--json")
    assert outcome.out.count("\n") == 1
    models = {entry["name"]: entry for entry in outcome.record["models"]}
    assert list(models) == list(KNOWN_MODELS)
    assert models["tiny"]["folder"] == str(family.target)
    assert models["tiny"]["drafters"] == [
        {
            "head": "none",
            "methods": ["dflash", "ddtree"],
            "source": "tiny-none",
            "folder": str(family.drafter),
        }
    ]
    assert models["llama3.1-8b"]["gated"]
    assert {drafter["head"] for drafter in models["qwen3-8b"]["drafters"]} == {"none", "domino", "dspark"}


def test_a_model_in_the_cache_is_on_disk(specrun, tmp_path):
    assert specrun("models", "--json").record["models"][2]["folder"] is None
    model = KNOWN_MODELS["qwen3-8b"]
    snapshot = Path(tmp_path, "hub", "models--Qwen--Qwen3-8B", "snapshots", model.revision)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert specrun("models", "--json").record["models"][2]["folder"] is None, "a config is not the weights"
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    (snapshot / "model-1.safetensors").touch()
    assert specrun("models", "--json").record["models"][2]["folder"] is None, "a shard is missing"
    (snapshot / "model-2.safetensors").touch()
    entry = specrun("models", "--json").record["models"][2]
    assert (entry["name"], entry["folder"]) == ("qwen3-8b", str(snapshot))
