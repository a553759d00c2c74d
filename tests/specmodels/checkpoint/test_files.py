"""Limits on what a folder may make us read: sizes, depths, and no path out of it."""

import json
import struct

import pytest
import torch
from safetensors.torch import save_file

from specmodels import load_target, save_target
from specmodels.checkpoint import files
from specmodels.checkpoint.files import TensorFolder, read_json

from doubles.tiny import qwen3_config, tiny_target


def refused(call, part):
    with pytest.raises(ValueError) as caught:
        call()
    assert part in str(caught.value), caught.value
    assert "\n" not in str(caught.value)


@pytest.fixture
def folder(tmp_path):
    save_target(tiny_target(qwen3_config()), tmp_path / "target")
    return tmp_path / "target"


@pytest.mark.parametrize(
    "shard", ["../other.safetensors", "/other.safetensors", "a/b", "..", ".", "", "a\\b", "a\0"]
)
def test_an_index_cannot_leave_its_folder(tmp_path, folder, shard):
    # the file is there, and would load
    save_file({"secret": torch.zeros(1)}, tmp_path / "other.safetensors")
    (folder / files.INDEX).write_text(json.dumps({"weight_map": {"secret": shard}}))
    refused(lambda: TensorFolder(folder), "expected names of files in that folder")


def test_links_into_a_cache_are_followed(tmp_path, folder):
    # as the hub's cache keeps files
    weights = folder / files.SINGLE
    weights.rename(tmp_path / "blob")
    weights.symlink_to(tmp_path / "blob")
    assert "norm.weight" in {name.removeprefix("model.") for name in TensorFolder(folder).names}


@pytest.mark.parametrize("length", [files.MOST_HEADER + 1, 2**40, 2**63, 2**64 - 1])
def test_a_header_of_any_stated_length_is_not_read(folder, length, monkeypatch):
    with (folder / files.SINGLE).open("wb") as stream:
        stream.write(struct.pack("<Q", length) + b"{")
        stream.truncate(files.MOST_HEADER + 100)
    monkeypatch.setattr(files, "safe_open", None)  # nothing gets as far as the library
    refused(lambda: TensorFolder(folder), files.SINGLE)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0" * 8, b"\0" * 9, b"\2" + b"\0" * 7 + b"{"])
def test_files_of_a_few_bytes(folder, data):
    (folder / files.SINGLE).write_bytes(data)
    refused(lambda: TensorFolder(folder), "download it again")


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}, "unreadable header"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 2**62]}, "truncated"),
        ({"dtype": "F32", "shape": [1], "data_offsets": []}, "unreadable header"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "unreadable header"),
        ([], "unreadable header"),
    ],
)
def test_headers_that_promise_what_is_not_there(folder, entry, part):
    header = json.dumps({"a": entry}).encode()
    (folder / files.SINGLE).write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    refused(lambda: TensorFolder(folder), part)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[" * 100_000, "not readable as JSON"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not readable as JSON"),
        ("[]", "got a JSON list, expected an object"),
        ("", "not readable as JSON"),
    ],
)
def test_json_that_is_none(tmp_path, text, part):
    (tmp_path / "config.json").write_text(text)
    refused(lambda: read_json(tmp_path / "config.json"), part)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "config.json").write_bytes(b'{"a": "\xff"}')
    refused(lambda: read_json(tmp_path / "config.json"), "not readable as UTF-8")


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "config.json").open("wb") as stream:
        stream.truncate(files.MOST_TEXT + 1)
    refused(lambda: read_json(tmp_path / "config.json"), f"expected at most {files.MOST_TEXT}")


@pytest.mark.parametrize(
    "key", ["num_hidden_layers", "hidden_size", "vocab_size", "head_dim", "num_attention_heads"]
)
@pytest.mark.parametrize("value", [2**31, 2**63, 10**300])
def test_sizes_of_no_model(folder, key, value):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    refused(lambda: load_target(folder), f"{key}: got a larger number, expected at most")


@pytest.mark.parametrize("value", ["1e999", "-1e999", "1e39", "1" + "0" * 400])
def test_numbers_that_single_precision_does_not_hold(folder, value):
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"rms_norm_eps": 1e-06', f'"rms_norm_eps": {value}'))
    refused(lambda: load_target(folder), "rms_norm_eps: got a number out of range")
