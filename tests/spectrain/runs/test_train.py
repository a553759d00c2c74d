"""A whole run on a random family: it goes on where it stopped, and what it writes is a drafter of the engine."""

import json
import shutil

import numpy as np
import pytest
import torch

from specrun import Sampling, load_engine
from spectrain.data import concatenate, read_shard, select, write_shard
from spectrain.runs.train import train

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
held_out = 4
temperatures = [0.0, 1.0]
max_new_tokens = 10
row = 64
rows = 2
[objective]
name = "{objective}"
anchors = 4
[optimiser.drafter]
matrix_lr = 0.02
other_lr = 1e-2
{more}
[schedule]
steps = 4
warmup = 1
[run]
checkpoint_every = 2
average = 0.5
"""
HEAD = "[optimiser.head]\nmatrix_lr = 0.02\nother_lr = 1e-2\n"


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return write_family(tmp_path_factory.mktemp("family"))


@pytest.fixture
def recipe(family, tmp_path):
    path = tmp_path / "prompts.jsonl"
    rows = [{"prompt": f"Count to {n}.", "domain": "odd" if n % 2 else "even"} for n in range(16)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(objective="domino", more=HEAD):
        fields = {"target": family.target, "drafter": family.drafter, "prompts": path}
        return RECIPE.format(objective=objective, more=more, **fields)

    return make


def quiet(*_):
    return None


def run(text, folder, report=quiet, **options):
    return train(text, "file.toml", folder, prompts=quiet, report=report, **options)


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(family, recipe, tmp_path):
    text = recipe()
    outcome = run(text, tmp_path / "whole")

    for stage, at in (("answers", 3), ("training", 3)):

        def stop(found, done, total, values, stage=stage, at=at):
            if (found, done) == (stage, at):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(text, tmp_path / "parts", stop, resume=stage == "training")
    resumed = run(text, tmp_path / "parts", resume=True)
    assert resumed == outcome
    assert set(outcome.after) == {"odd", "even", "all"}
    whole, parts = (torch.load(tmp_path / name / "last.pt") for name in ("whole", "parts"))
    for key in ("parameters", "average"):
        assert all(torch.equal(whole[key][name], parts[key][name]) for name in whole[key])
    log = [json.loads(line) for line in (tmp_path / "parts" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in log] == [4]

    # what is written is the average, and the engine decodes with it what plain decoding gives
    engine = load_engine(family.target, "domino", draft=tmp_path / "parts" / "model")
    saved = {name.removeprefix("drafter."): value for name, value in parts["average"].items()}
    loaded = engine.parts.drafter.state_dict()
    assert all(torch.equal(loaded[name], saved[name].bfloat16().float()) for name in loaded)
    prompt, sampling = engine.chat_ids("Count to 9."), Sampling(max_new_tokens=12)
    plain = load_engine(family.target, "ar").generate(prompt, sampling)
    assert engine.generate(prompt, sampling).token_ids == plain.token_ids
    record = json.loads((tmp_path / "parts" / "record.json").read_text())
    assert record["recipe"]["objective"]["name"] == "domino"
    assert set(record["data"]) == {"train", "valid"}


def test_answers_are_the_targets_own(family, recipe, tmp_path):
    run(recipe(), tmp_path)
    plain = load_engine(family.target, "ar")
    valid = read_shard(tmp_path / "data", "valid")
    assert len(valid) == 3  # a fifth of sixteen
    for index in range(3):
        ids, length = valid.document(index).tolist(), int(valid.prompt_lengths[index])
        again = plain.generate(ids[:length], Sampling(max_new_tokens=10))
        assert again.token_ids == ids[length:]
    assert np.load(tmp_path / "data" / "train.temperatures.npy").tolist() == [0.0, 1.0] * 6


def test_shards_stand_in_and_bad_ones_are_refused(recipe, tmp_path):
    run(recipe(), tmp_path / "first")
    data = tmp_path / "first" / "data"
    lone = recipe("dels").replace("[optimiser.drafter]\nmatrix_lr = 0.02\nother_lr = 1e-2\n", "")
    run(lone, tmp_path / "second", shards=data)
    shard = read_shard(data, "train")
    with pytest.raises(ValueError, match=r"the data are not those of .*record\.json; give the same --data"):
        run(lone, tmp_path / "second", shards=other(data, tmp_path / "other"), resume=True)

    def refused(split, bad, message):
        folder = tmp_path / "bad"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(data, folder)
        write_shard(folder, split, bad)
        with pytest.raises(ValueError, match=message):
            run(recipe(), tmp_path / "third", shards=folder)
        assert not (tmp_path / "third").exists()

    refused("train", select(shard, np.arange(0)), "shard train in .*: got no documents, expected some")
    shard.tokens[3] = 2048
    refused("train", shard, "got the token 2048, expected below 2048; .* another vocabulary")
    shard.tokens[3] = 7
    refused("train", concatenate([shard, shard]), "temperatures.npy: got 12 values, expected 24")
    shard.prompt_lengths[:] = shard.lengths - 1
    refused("train", shard, "got no answer of two tokens, so nothing is supervised")


def other(data, folder):
    """A copy of the data without one document."""
    shutil.copytree(data, folder)
    shard = read_shard(data, "train")
    write_shard(folder, "train", select(shard, np.arange(11)))
    np.save(folder / "train.temperatures.npy", np.zeros(11, dtype=np.float32))
    return folder


def test_refusals(recipe, tmp_path):
    text = recipe()
    with pytest.raises(ValueError, match="holds no run, expected a recipe"):
        run(text, tmp_path / "run", resume=True)
    run(text, tmp_path / "run")
    with pytest.raises(ValueError, match="holds a run already; give --resume"):
        run(text, tmp_path / "run")
    with pytest.raises(ValueError, match="is another recipe"):
        run(text + "\n", tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="head: got jump, expected some of hidden_size"):
        run(recipe(more=HEAD + "[head]\njump = 3\n"), tmp_path / "head")
    assert not (tmp_path / "head").exists()


def test_a_head_alone(recipe, family, tmp_path):
    """LiLiCorr beside a drafter that stays as it is."""
    alone = recipe("lilicorr").replace("[drafter]\n", "[drafter]\nlearns = false\n")
    alone = alone.replace("[optimiser.drafter]\nmatrix_lr = 0.02\nother_lr = 1e-2\n", "")
    run(alone, tmp_path)
    first = load_engine(family.target, "dflash", draft=family.drafter).parts.drafter.state_dict()
    last = load_engine(family.target, "lilicorr", draft=tmp_path / "model").parts
    for name, tensor in last.drafter.state_dict().items():
        assert torch.equal(tensor, first[name].bfloat16().float()), name
    assert bool(last.corrector.into.weight.any()), "zero before any training"


def test_a_new_drafter(recipe, family, tmp_path):
    new = "[drafter.new]\nlayers = 1\nblock_size = 4\ntarget_layers = [0, 2]\nmask_token_id = 2047\n"
    text = recipe("dflash", more="").replace(f'[drafter]\nstart = "{family.drafter}"\n', new)
    run(text, tmp_path / "run")
    engine = load_engine(family.target, "dflash", draft=tmp_path / "run" / "model")
    assert engine.parts.drafter.config.block_size == 4
    with pytest.raises(ValueError, match=r"target_layers: got \[0, 4\], expected some of 0 to 3"):
        run(text.replace("[0, 2]", "[0, 4]"), tmp_path / "other")
