"""`specrun convert`: GGUF files and DeLS-Spec's pickles give models that compute what they did; nothing else gets in."""

import json
import os
import pickle

import gguf
import pytest
import torch
from safetensors.torch import load_file

from speccorrect.registry import claim_head, corrector_specs
from speccorrect.source import HeadShape, HeadSource
from specmodels import load_drafter, load_target, save_drafter, save_target
from specmodels.kv import RowsMemory
from specrun import load_engine
from specrun.tokens import Tokenizer

from doubles.blocks import randomise
from doubles.gguf_file import TEXTS, write_gguf
from doubles.tiny import dflash_config, llama_config, qwen3_config, tiny_drafter, tiny_target

SIZES = {"vocab_size": 2048, "num_layers": 2, "max_positions": 128}
CONFIGS = {
    "llama": llama_config(**SIZES),
    "llama-tied": qwen3_config(**SIZES, qk_norm=False),
    "qwen3": qwen3_config(**SIZES),
}


def logits(target):
    ids = torch.randint(0, 2048, (1, 12), generator=torch.Generator().manual_seed(2))
    return target.logits(target(ids, torch.arange(12)[None], RowsMemory()).hidden_BQD)


def written(tmp_path, config, **options):
    """The model, and a GGUF file of it."""
    model = tiny_target(config, seed=3)
    save_target(model, tmp_path / "made", dtype=torch.float32)
    public = json.loads((tmp_path / "made" / "config.json").read_text())
    write_gguf(tmp_path / "m.gguf", public, load_file(tmp_path / "made" / "model.safetensors"), **options)
    return model, tmp_path / "m.gguf"


@pytest.mark.parametrize("name", CONFIGS)
def test_a_gguf_file_computes_what_it_did(specrun, tmp_path, name):
    model, path = written(tmp_path, CONFIGS[name])
    outcome = specrun("convert", path, "--output", tmp_path / "out", "--dtype", "float32")
    assert outcome.code == 0, outcome.err
    assert outcome.out == f"written: {tmp_path / 'out'} (tiny, from F32 to float32)\n"
    found = load_target(tmp_path / "out")
    assert found.config == CONFIGS[name]
    assert torch.equal(logits(found), logits(model))


def test_quantised_weights_are_spread_out(specrun, tmp_path):
    model, path = written(
        tmp_path, llama_config(**SIZES, intermediate_size=64), kind=gguf.GGMLQuantizationType.Q8_0
    )
    assert specrun("convert", path, "--output", tmp_path / "out", "--dtype", "float32").code == 0
    ours = model.state_dict()
    for name, tensor in load_target(tmp_path / "out").state_dict().items():
        # half a step of 127 to the largest weight of a group
        assert (tensor - ours[name]).abs().max() <= ours[name].abs().max() / 254 * 1.01, name


def test_its_tokenizer_reads_and_writes(specrun, tmp_path):
    _, path = written(tmp_path, CONFIGS["qwen3"])
    specrun("convert", path, "--output", tmp_path / "out")
    ours = Tokenizer(tmp_path / "out")
    engine = load_engine(tmp_path / "out", "ar")
    vocab = json.loads(TEXTS.read_text(encoding="utf-8"))["model"]["vocab"]
    for text in (
        "Once upon a time,\n\n 12 apples' worth",
        "def f(x):\n\treturn x",
        "na\u00efve \u4e2d\u6587 \U0001f600",
    ):
        ids = ours.encode(text, special=True)
        assert ours.decode(ids) == text
        assert all(number in vocab.values() for number in ids)
    assert ours.encode("<|im_end|>", special=False) == [ours.token_id("<|im_end|>")]
    assert engine.stop_ids == (ours.token_id("<|im_end|>"),)
    assert engine.chat_ids("Hello") == ours.encode("Hello", special=False)


def test_a_leading_token_that_the_file_asks_for(specrun, tmp_path):
    _, path = written(
        tmp_path, CONFIGS["llama"], **{"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.pre": "gpt-2"}
    )
    specrun("convert", path, "--output", tmp_path / "out")
    ours = Tokenizer(tmp_path / "out")
    with_it, without = ours.encode("Hi", special=True), ours.encode("Hi", special=False)
    assert with_it == [ours.token_id("<|endoftext|>"), *without]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"tokenizer.ggml.pre": "deepseek"},
            "tokenizer: got model 'gpt2' and pre 'deepseek', expected gpt2 and one of gpt-2",
        ),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer: got model 'llama'"),
        ({"llama.rope.scaling.type": "yarn"}, "got a stretched rotation"),
        ({"llama.block_count": None}, "llama.block_count: missing"),
        ({"llama.block_count": 3}, "missing"),
        ({"llama.attention.head_count_kv": 3}, "attn_k.weight: got 16 rows, expected pairs for 3 heads"),
    ],
)
def test_gguf_files_that_cannot_be_converted(specrun, tmp_path, fields, message):
    _, path = written(tmp_path, CONFIGS["llama"], **fields)
    before = sorted(tmp_path.rglob("*"))
    outcome = specrun("convert", path, "--output", tmp_path / "out")
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("data", [b"", b"GGUF", b"GGUF\3\0\0\0" + b"\xff" * 16, os.urandom(200)])
def test_files_that_are_no_gguf(specrun, tmp_path, data):
    (tmp_path / "m.gguf").write_bytes(data)
    outcome = specrun("convert", tmp_path / "m.gguf", "--output", tmp_path / "out")
    assert outcome.code == 2
    assert "not readable as GGUF" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


# DeLS-Spec


@pytest.fixture
def parts(tmp_path):
    """A drafter's folder, a head, and the authors' two files of it."""
    target = qwen3_config()
    drafter = tiny_drafter(target, dflash_config(target))
    save_drafter(drafter, target, tmp_path / "drafter")
    shape = HeadShape(hidden_size=32, vocab_size=61, block_size=6, shifted=False)
    spec = corrector_specs()["dels"]
    head = randomise(spec.new(shape), 4)
    config, tensors = spec.save(head)
    state = {
        name.removeprefix("local_head."): value
        for name, value in tensors.items()
        if name.startswith("local_head.")
    }
    # training leaves the target's table in the file
    state["embed_tokens.weight"] = torch.zeros(61, 32)
    torch.save({"model_config": config["local_head"], "model_state_dict": state}, tmp_path / "local_head.pt")
    torch.save({"counts": tensors["loss_mask_unigram.counts"]}, tmp_path / "loss_mask_unigram.pt")
    return tmp_path, shape, head


def test_a_dels_head_joins_its_drafter(specrun, parts):
    folder, shape, head = parts
    outcome = specrun(
        *("convert", folder / "local_head.pt", "--drafter", folder / "drafter", "--output", folder / "out")
    )
    assert outcome.code == 0, outcome.err
    found = load_drafter(folder / "out", qwen3_config())
    source = HeadSource(shape, dict(found.leftover_config), dict(found.leftover_tensors))
    name, its = claim_head(source)
    assert name == "dels"
    assert not source.tensors
    for key, tensor in head.state_dict().items():
        assert torch.equal(tensor, its.state_dict()[key]), key


class Trap:
    """What a pickle does when code in it is run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_code_in_a_pickle_is_never_run(specrun, parts):
    folder, _, _ = parts
    with (folder / "local_head.pt").open("wb") as stream:
        pickle.dump(Trap(folder / "trap"), stream, protocol=2)
    torch.save(
        {"model_state_dict": {"x": torch.zeros(1)}, "trap": Trap(folder / "trap")}, folder / "other.pt"
    )
    for name in ("local_head.pt", "other.pt"):
        outcome = specrun(
            "convert", folder / name, "--drafter", folder / "drafter", "--output", folder / "out"
        )
        assert outcome.code == 2
        assert "code in a pickle is never run" in outcome.err
        assert not (folder / "trap").exists()
        assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.gguf", "--output", "out"), "source: got 'none.gguf', expected a .gguf file"),
        (("drafter/config.json", "--output", "out"), "source: got 'config.json', expected a .gguf file"),
        (("local_head.pt", "--output", "out"), "drafter: got none, expected the folder"),
        (
            ("local_head.pt", "--drafter", "drafter", "--output", "drafter"),
            "output: got 'drafter', expected a folder that is empty",
        ),
        (
            ("local_head.pt", "--drafter", "drafter", "--dtype", "float32", "--output", "out"),
            "dtype: has no effect",
        ),
        (("local_head.pt", "--drafter", "nowhere", "--output", "out"), "config.json: missing in nowhere"),
        (("m.gguf", "--drafter", "drafter", "--output", "out"), "drafter: has no effect on a GGUF file"),
        (("m.gguf", "--dtype", "int4", "--output", "out"), "dtype: got 'int4'"),
        (
            ("counts/local_head.pt", "--drafter", "drafter", "--output", "out"),
            "counts/loss_mask_unigram.pt: missing",
        ),
    ],
)
def test_wrong_input_leaves_nothing(specrun, parts, monkeypatch, arguments, message):
    folder, _, _ = parts
    monkeypatch.chdir(folder)
    (folder / "counts").mkdir()
    (folder / "counts" / "local_head.pt").write_bytes((folder / "local_head.pt").read_bytes())
    (folder / "m.gguf").write_bytes(b"GGUF")
    before = sorted(folder.rglob("*"))
    outcome = specrun("convert", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"specrun: {message}"), outcome.err
    assert sorted(folder.rglob("*")) == before
