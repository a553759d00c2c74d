"""Whatever a user can get wrong: one line that says so, exit code 2, and nothing written."""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

FLAGS = [
    (("--temperature", "-1"), "temperature: got -1.0, expected a number from 0 to a million"),
    (("--temperature", "nan"), "temperature: got nan"),
    (("--temperature", "1e39"), "--temperature: got '1e39', expected a number of at most 3e.38"),
    (("--temperature", "warm"), "--temperature: got 'warm', expected a number"),
    (("--top-p", "0"), "top-p: got 0.0, expected a number above 0 and at most 1"),
    (("--top-k", "-1"), "top-k: got -1, expected at least 0"),
    (
        ("--top-k", str(2**70)),
        "--top-k: got '1180591620717411303424', expected a whole number of at most 64 bits",
    ),
    (("--min-p", "2"), "min-p: got 2.0, expected a number from 0 to 1"),
    (("--repetition-penalty", "0"), "repetition penalty: got 0.0, expected above 0"),
    (("--presence-penalty", "inf"), "presence penalty: got inf, expected a finite number"),
    (("--max-new-tokens", "-1"), "max new tokens: got -1, expected at least 0"),
    (("--max-new-tokens", "many"), "--max-new-tokens/--max-tokens: got 'many', expected a whole number"),
    (("--max-new-tokens", "300"), "prompt: got \\d+ tokens and 300 new ones, expected at most 256 together"),
    (("--seed",), "--seed: got nothing, expected a value"),
    (("--stop", ""), "stop: got .*expected texts of at least one character"),
    (("--stop", "\udcff"), "stop: got bytes that are no UTF-8"),
    (("--system", "\udcff"), "system: got bytes that are no UTF-8"),
    (("--block-size", "1"), "block size: got 1, expected 2 to 6"),
    (("--block-size", "7"), "block size: got 7, expected 2 to 6"),
    (("--method", "ddtree", "--tree-budget", "100000"), "tree budget: got 100000, expected 0 to 256"),
    (("--accept", "maybe"), "--accept: got 'maybe', expected one of '?match'?, '?reject'?"),
    (("--device", "abacus"), "device: got 'abacus', expected auto, cpu, cuda or cuda:N"),
    (("--device", "meta"), "device: got 'meta', expected auto, cpu, cuda or cuda:N"),
    (("--device", "cuda:99"), "device: got 'cuda:99', expected one that torch finds"),
    (("--dtype", "int8"), "dtype: got 'int8', expected one of float32, bfloat16"),
    (("--method", "magic"), "method: got 'magic', expected one of ar, dflash, ddtree"),
    (("--frobnicate",), "arguments: got --frobnicate, expected only known options"),
    (("--temp", "1"), "arguments: got --temp 1?"),
    # options without effect
    (("--seed", "3"), "seed: got 3 at temperature 0, where it has no effect"),
    (("--top-p", "0.5"), "top-p: got 0.5 at temperature 0"),
    (("--top-k", "5"), "top-k: got 5 at temperature 0"),
    (("--min-p", "0.5"), "min-p: got 0.5 at temperature 0"),
    (("--tree-budget", "8"), "tree budget: has no effect with method dflash"),
    (("--accept", "reject", "--draft-temperature", "1"), "draft-temperature: got 1.0 at temperature 0"),
    (("--temperature", "1", "--draft-temperature", "1"), "draft temperature: has no effect"),
    (("--method", "ddtree", "--couple", "0.5"), "couple: got 0.5 at temperature 0"),
    (("--method", "ddtree", "--couple", "2", "--temperature", "1"), "couple: got 2.0, expected 0"),
    (("--couple", "0.5", "--temperature", "1"), "couple: has no effect with method dflash"),
    (("--method", "ddtree", "--accept", "reject"), "accept: method ddtree grows a tree"),
    (("--method", "auto", "--compile"), "compile: a compiled round has one width, got method auto"),
    (
        ("--method", "auto", "--tree-budget", "8"),
        "tree budget: got 8 with method auto, which chooses that itself",
    ),
    (("--method", "auto", "--accept", "reject"), "accept: got reject with method auto"),
    (("--method", "auto", "--policy", "fixed"), "policy: got fixed with method auto"),
    (("--policy", "magic"), "policy: got 'magic', expected one of adaflash, caddtree"),
    (("--policy", "fixed=0"), "policy: got fixed=0, expected a whole number of rows from 1"),
    (("--policy", "adaflash"), "policy: got adaflash, but the drafter carries no head of lengths"),
    (("--method", "ar", "--policy", "fixed"), "policy: has no effect with method ar"),
    (("--method", "ar"), "draft: has no effect with method ar"),
    (("--method", "ar", "--block-size", "4"), "block size: has no effect with method ar"),
    (("--no-chat-template", "--system", "x"), "system: has no effect with --no-chat-template"),
    (("--no-chat-template", "--no-thinking"), "thinking: has no effect with --no-chat-template"),
    (("--thinking",), "thinking: has no effect with this model"),
]


@pytest.fixture
def refused(specrun, tmp_path, monkeypatch):
    """Run in an empty folder; what comes back is the one line."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(empty / "hub"))

    def run(*arguments):
        before = sorted(tmp_path.rglob("*"))
        outcome = specrun(*arguments)
        assert outcome.code == 2
        assert outcome.out == ""
        assert re.fullmatch(r"specrun: [^:\n]+: [^\n]+\n", outcome.err), outcome.err
        assert sorted(tmp_path.rglob("*")) == before
        return outcome.err.removeprefix("specrun: ")

    return run


@pytest.fixture
def broken(family, tmp_path):
    """A copy of the target to be damaged."""
    return Path(shutil.copytree(family.target, tmp_path / "broken"))


@pytest.mark.parametrize(
    ("flags", "message"), FLAGS, ids=lambda part: " ".join(part) if isinstance(part, tuple) else ""
)
def test_wrong_values(refused, family, flags, message):
    method = () if "--method" in flags else ("--method", "dflash")
    models = ("--model", family.target, "--draft", family.drafter, *method)
    line = refused("generate", "Hello", *models, *flags)
    assert re.match(message, line), line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("doctor", "--contexts", "8"), "contexts: has no effect without --measure"),
        (("doctor", "--measure", "--context", "8"), "context: has no effect with --measure"),
        (("doctor", "--measure", "--batch-size", "2"), "batch-size: has no effect with --measure"),
        (
            ("chat", "--model", "tiny-llada"),
            "model: got tiny-llada, which denoises blocks, expected one that",
        ),
        (("check", "--model", "tiny-llada"), "model: got tiny-llada, which denoises blocks"),
        (("doctor", "--model", "llada2.1-mini"), "model: got llada2.1-mini, which denoises blocks"),
        (("doctor", "--context", "0"), "context: got 0, expected at least 1"),
        (("doctor", "--context", "1000000"), "context: got 1000000 tokens, expected at most"),
        (("doctor", "--batch-size", "-1"), "batch size: got -1, expected at least 1"),
        (("doctor", "--model", "qwen3-9b"), "model: got 'qwen3-9b', expected one of tiny, qwen3-4b"),
        (
            ("doctor", "--model", "qwen3-8b", "--method", "dels"),
            "draft: none is known for qwen3-8b and method dels",
        ),
        (("doctor", "--dtype", "int8"), "dtype: got 'int8', expected one of"),
        (("doctor", "--device", "abacus"), "device: got 'abacus', expected auto"),
        (("doctor", "--measure", "--method", "ar"), "method: got ar, which drafts nothing"),
        (("doctor", "--measure", "--contexts", "0"), "contexts: got '0', expected lengths from 1"),
        ((), "command: got none, expected one; specrun --help lists them"),
        (("jump",), "COMMAND: got 'jump', expected one of '?generate'?"),
        (("models", "extra"), "arguments: got extra"),
        (("generate",), "prompt: got none, expected a text, - for standard input, or --prompt-file"),
        (("generate", ""), "prompt: got an empty text"),
        (("generate", "\udcff"), "prompt: got bytes that are no UTF-8"),
        (
            ("generate", "a", "--prompt-file", "b"),
            "prompt: got a text and --prompt-file, expected one of them",
        ),
        (("generate", "--prompt-file", "absent"), "prompt file: got 'absent'"),
        (("generate", "--prompt-file", "."), "prompt file: got '.'"),
        (
            ("generate", "a", "--model", "qwen3-9000b"),
            "model: got 'qwen3-9000b', expected one of tiny, qwen3-4b",
        ),
        (("generate", "a", "--model", "./absent"), "model folder absent: missing"),
        (
            ("generate", "a", "--model", "qwen3-8b", "--offline"),
            "Qwen/Qwen3-8B@.*not on this machine while offline",
        ),
        (("generate", "a", "--model", "some/model", "--offline"), "some/model@main: not on this machine"),
        (
            ("generate", "a", "--model", "qwen3-8b", "--tree-budget", "9"),
            "tree budget: got 9 with method auto",
        ),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_wrong_requests(refused, arguments, message):
    line = refused(*arguments)
    assert re.match(message, line), line


def test_no_drafter_is_known_for_a_folder(refused, family):
    line = refused("generate", "Hello", "--model", family.target, "--method", "dflash")
    assert re.match("draft: none is known for .*--draft", line), line


def test_a_drafter_of_another_method(refused, family):
    arguments = ("--model", family.target, "--draft", family.drafter, "--method", "domino")
    assert re.match("draft: .* carries no head, expected domino", refused("generate", "Hello", *arguments))


@pytest.mark.parametrize("data", [b"\xff\xfe", "caf\u00e9".encode("latin-1")])
def test_prompts_that_are_no_text(refused, monkeypatch, tmp_path, data):
    (tmp_path / "prompt").write_bytes(data)
    message = "prompt: got bytes in .* that are no UTF-8"
    assert re.match(message, refused("generate", "--prompt-file", tmp_path / "prompt"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert re.match(message, refused("generate", "-"))


@pytest.mark.parametrize("data", [b"", b"\n"])
def test_prompts_that_are_empty(refused, monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert refused("generate", "-").startswith("prompt: got an empty text")


def _without_shard(folder):
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    half = {name: tensors[name] for name in names[::2]}
    save_file(half, folder / "model-00001-of-00002.safetensors")
    shards = {name: f"model-0000{1 if name in half else 2}-of-00002.safetensors" for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (folder / "model.safetensors").unlink()


def _truncated(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _with_tensor(name, change):
    def damage(folder):
        tensors = load_file(folder / "model.safetensors")
        tensors[name] = change(tensors[name])
        save_file(tensors, folder / "model.safetensors")

    return damage


def _with_config(**changes):
    def damage(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return damage


def _without_template(folder):
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["chat_template"]
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without_shard, "missing 1 of 2 shards, first model-00002-of-00002.safetensors"),
        (_truncated, "model.safetensors: truncated, got \\d+ bytes, expected \\d+"),
        (
            _with_tensor("model.norm.weight", lambda old: torch.ones(3)),
            "norm.weight: got shape \\[3\\], expected \\[32\\]",
        ),
        (
            _with_tensor("model.norm.weight", lambda old: old.long()),
            "norm.weight: got torch.int64, expected a floating type",
        ),
        (_with_config(surprise=1), "surprise"),
        (_without_template, "no chat template, expected one .*--no-chat-template"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json in it"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json: not readable as JSON"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer: no tokenizer.json in"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer: .* cannot be read"),
        (
            lambda folder: (folder / "model.safetensors").unlink(),
            "no weight file, expected model.safetensors",
        ),
    ],
    ids=[
        *("missing shard", "truncated file", "wrong shape", "wrong dtype", "unknown key", "no template"),
        *("no config", "broken config", "no tokenizer", "broken tokenizer", "no weights"),
    ],
)
def test_damaged_folders(refused, family, broken, damage, message):
    damage(broken)
    line = refused("generate", "Hello", "--model", broken, "--draft", family.drafter, "--method", "dflash")
    assert re.search(message, line), line
