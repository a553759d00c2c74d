"""`specrun train`: the list, a run with its curves, and one clear line for whatever is wrong."""

import json
import math

import pytest

import spectrain.heads
import spectrain.runs.train
from spectrain.loop import Loss

RECIPE = """
title = "x"
[target]
model = "{target}"
[drafter]
start = "{drafter}"
[data]
prompts = "{prompts}"
documents = 8
max_new_tokens = 8
row = 64
rows = 2
[objective]
name = "dflash"
anchors = 4
[optimiser.drafter]
matrix_lr = 0.02
other_lr = 1e-2
[schedule]
steps = 3
warmup = 1
"""


@pytest.fixture
def recipe(family, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"Count to {n}."}) + "\n" for n in range(10)))
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.format(target=family.target, drafter=family.drafter, prompts=prompts))
    return path


def test_the_list(specrun):
    found = specrun("train", "--list")
    assert found.code == 0
    assert {"tiny-domino", "tiny-dspark"} <= {line.split()[0] for line in found.out.splitlines()}


def test_a_run(specrun, recipe, tmp_path):
    pytest.importorskip("matplotlib")
    folder = tmp_path / "out"
    found = specrun("train", recipe, "--output", folder)
    assert found.code == 0, found.err
    assert found.out.splitlines()[1].split() == ["DOMAIN", "BEFORE", "AFTER", "GAIN"]
    result = json.loads((folder / "result.json").read_text())
    last = found.out.splitlines()[3].split()
    assert last[:3] == ["all", f"{result['before']['all']:.2f}", f"{result['after']['all']:.2f}"]
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    again = specrun("train", recipe, "--output", folder)
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "holds a run already" in again.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "recipe: got none, expected a name or a file; see specrun train --list"),
        (("nothing",), "recipe: got 'nothing', expected a file that ends in .toml or one of tiny-"),
        (("tiny-domino", "--list"), "--list: has no effect beside a recipe"),
        (("absent.toml",), "recipe: got absent.toml, which is no file"),
    ],
)
def test_refusals(specrun, arguments, message):
    found = specrun("train", *arguments)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith(f"specrun: {message}")
    assert found.err.count("\n") == 1


def test_a_bad_recipe_leaves_nothing_behind(specrun, recipe, tmp_path):
    recipe.write_text(recipe.read_text().replace("anchors = 4", "ancors = 4"))
    found = specrun("train", recipe, "--output", tmp_path / "out")
    assert found.code == 2
    assert "objective: got the key 'ancors', expected one of name, anchors" in found.err
    assert not (tmp_path / "out").exists()


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_its_batch(specrun, recipe, tmp_path, monkeypatch):
    made = spectrain.heads.head_objective

    def poisoned(*arguments, **options):
        objective = made(*arguments, **options)

        def loss(batch, generator):
            found = objective(batch, generator)
            return Loss(found.loss * (math.nan if batch.number == 1 else 1.0), found.metrics)

        return loss

    monkeypatch.setattr(spectrain.runs.train, "head_objective", poisoned)
    found = specrun("train", recipe, "--output", tmp_path / "out")
    assert found.code == 2
    line = found.err.splitlines()[-1]
    assert line.startswith("specrun: loss: got nan at step 1, batch kept in not-finite-1.pt of")
    assert (tmp_path / "out" / "not-finite-1.pt").is_file()
    assert not (tmp_path / "out" / "model").exists()
