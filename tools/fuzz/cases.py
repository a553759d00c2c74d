"""A small model family, and ways to damage its files: in bytes, in JSON values, in headers, in templates."""

import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import spectiny
from speccorrect.registry import corrector_specs
from speccorrect.source import HeadShape
from specmodels.checkpoint import save_drafter, save_target
from specmodels.dflash import DFlash, DFlashConfig
from specmodels.dflash.config import LayerKind
from specmodels.layers.rope import RopeConfig
from specmodels.qwen3 import Qwen3, Qwen3Config

ROPE = RopeConfig(theta=10_000.0)
SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "num_kv_heads": 1, "head_dim": 16}
TARGET = Qwen3Config(
    vocab_size=2048,
    num_layers=2,
    norm_eps=1e-6,
    rope=ROPE,
    max_positions=128,
    qk_norm=True,
    qkv_bias=False,
    output_bias=False,
    mlp_bias=False,
    tie_embeddings=True,
    **SIZES,
)
DRAFTER = DFlashConfig(
    norm_eps=1e-6,
    rope=ROPE,
    max_positions=128,
    layers=(LayerKind(window=None, causal=False),),
    attention_bias=False,
    block_size=4,
    mask_token_id=1,
    target_layers=(0, 1),
    target_hidden_size=32,
    shifted=False,
    **SIZES,
)

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 2**16, 2**31, 2**63, -(2**63), 10**40, 0.0, -0.5, 1e-300, 1e308),
    *(
        float("nan"),
        float("inf"),
        "",
        "x",
        "x" * 5000,
        "\0",
        "../../../etc/passwd",
        "C:\\x",
        "\ud800",
        [],
        {},
    ),
    *([[]], [1, "a", None], {"a": {"b": []}}, ["full_attention"] * 3, "float32", "qwen3", "llama", "yarn"),
]
PIECES = [
    *(
        "{{ messages }}",
        "{{ messages[0].content }}",
        "{{ messages[9].content }}",
        "{{ 1 / 0 }}",
        "{{ bos_token }}",
    ),
    *("{% for a in range(99999) %}{{ a }}{% endfor %}", "{{ 'a' * 10 ** 10 }}", "{{ 9 ** 9 ** 9 }}"),
    *(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% if x %}",
        "{% endif %}",
    ),
    *("{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ raise_exception('no') }}", "{{ x.y.z }}"),
    *(
        "{{ strftime_now('%') }}",
        "{{ strftime_now(3) }}",
        "{{ messages | tojson(indent=-1) }}",
        "{{ {} | tojson }}",
    ),
    *("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% include 'x' %}", "{% import 'os' as os %}"),
    *("{{ '%0999999999d' | format(1) }}", "{{ '{:>999999999}'.format(1) }}", "{{ 'a' | center(999999999) }}"),
    *("{{ [1] * 9999999999 }}", "{{ range(10, 0, 0) }}", "{{ lipsum(n=10) }}", "{{ cycler }}", "{{ self }}"),
    "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    *(
        "{{ messages | map(attribute='content') | join }}",
        "{{ 'a'.encode().hex() }}",
        "{{ 'x'.join(messages) }}",
    ),
    *(
        "\ud800",
        "\0",
        "{#",
        "{{",
        "%}",
        "{{ (" + "(" * 500 + "1" + ")" * 500 + ") }}",
        "{{ " + "-" * 5000 + "1 }}",
    ),
]


def write_models(folder: Path) -> list[str]:
    """A target and a drafter per head; returns the methods, which are the drafters' folders too."""
    torch.manual_seed(0)
    save_target(_random(Qwen3(TARGET)), folder / "target", dtype=torch.float32)
    tokenizer = Path(spectiny.__file__).parent / "data" / "qwen3-tiny"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(tokenizer / name, folder / "target" / name)
    shape = HeadShape(hidden_size=32, vocab_size=2048, block_size=4, shifted=False)
    methods = []
    for name, spec in corrector_specs().items():
        method = "dflash" if name == "none" else name
        head = _random(spec.new(shape))
        save_drafter(_random(DFlash(DRAFTER)), TARGET, folder / method, dtype=torch.float32)
        config, tensors = spec.save(head)
        held = json.loads((folder / method / "config.json").read_text(encoding="utf-8")) | config
        (folder / method / "config.json").write_text(json.dumps(held), encoding="utf-8")
        weights = folder / method / "model.safetensors"
        save_file(load_file(weights) | {key: value.contiguous() for key, value in tensors.items()}, weights)
        methods.append(method)
    return methods


def damage(folder: Path, method: str, rng: random.Random) -> str:
    """Change one file, in one way; says which kind of file it was."""
    kind = rng.choice(
        ["config", "config", "head", "head", "weights", "weights", "index", "tokenizer", "template"]
    )
    part = folder / rng.choice(["target", method])
    if kind == "template":
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 4)))
        (folder / "target" / "chat_template.jinja").write_bytes(text.encode("utf-8", "surrogatepass"))
    elif kind == "tokenizer":
        names = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
        _file(folder / "target" / rng.choice(names), rng, rng.randint(1, 3))
    elif kind == "index":
        _index(part, rng)
    elif kind == "weights":
        _weights(part / "model.safetensors", rng)
    else:
        _file((part if kind == "config" else folder / method) / "config.json", rng, rng.randint(1, 3))
    return kind


def _file(path: Path, rng: random.Random, changes: int) -> None:
    """A JSON file with other values, or with other bytes."""
    if rng.random() < 0.3:
        path.write_bytes(_bytes(path.read_bytes(), rng))
        return
    value = json.loads(path.read_text(encoding="utf-8"))
    for _ in range(changes):
        value = _changed(value, rng)
    path.write_bytes(json.dumps(value).encode("utf-8", "surrogatepass"))


def _changed(value: Any, rng: random.Random, depth: int = 0) -> Any:
    """One value in it replaced, removed or added."""
    if not value or not isinstance(value, dict | list) or (depth and rng.random() < 0.15):
        return rng.choice(VALUES)
    if isinstance(value, list):
        place = rng.randrange(len(value))
        return [*value[:place], _changed(value[place], rng, depth + 1), *value[place + 1 :]]
    kept = dict(value)
    name = rng.choice(list(kept))
    action = rng.random()
    if action < 0.1:
        del kept[name]
    elif action < 0.2:
        kept[rng.choice(["x", "", "model_type", name + "x"])] = rng.choice(VALUES)
    else:
        kept[name] = _changed(kept[name], rng, depth + 1)
    return kept


def _bytes(data: bytes, rng: random.Random) -> bytes:
    place, length = rng.randrange(len(data) + 1), rng.choice([1, 1, 2, 8, 64, 4096])
    new = rng.choice([b"", rng.randbytes(length), b"\0" * length, b"[" * 100_000, data[:length], b"9" * 5000])
    return rng.choice([data[:place], data[:place] + new + data[place + length :], new + data, data + new])


def _weights(path: Path, rng: random.Random) -> None:
    """Another header, another length of it, or other bytes."""
    data = path.read_bytes()
    action = rng.random()
    if action < 0.25:
        path.write_bytes(_bytes(data, rng))
        return
    length = struct.unpack("<Q", data[:8])[0]
    header, rest = data[8 : 8 + length], data[8 + length :]
    if action < 0.45:
        stated = rng.choice([0, 1, length - 1, length + 1, len(data), 2**24, 2**32, 2**63, 2**64 - 1])
        path.write_bytes(struct.pack("<Q", stated) + header + rest)
        return
    entries = _changed(json.loads(header), rng)
    if rng.random() < 0.3 and isinstance(entries, dict) and entries:
        entries[rng.choice(list(entries))] = {
            "dtype": rng.choice(["F32", "BF16", "I64", "F4", "BOOL", "F8_E4M3", "U64", ""]),
            "shape": rng.choice([[], [1], [2**40, 2**40], [-1], [0], ["a"], [4]]),
            "data_offsets": rng.choice([[0, 4], [4, 0], [0, 2**63], [-1, 3], [], ["a", "b"], [0, len(rest)]]),
        }
    changed = json.dumps(entries).encode("utf-8", "surrogatepass")
    path.write_bytes(struct.pack("<Q", len(changed)) + changed + rest)


def _index(folder: Path, rng: random.Random) -> None:
    """The weights as one shard under an index, and then a damaged index."""
    weights = folder / "model.safetensors"
    shard = folder / "model-00001-of-00001.safetensors"
    names = list(load_file(weights))
    weights.rename(shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, shard.name)}), encoding="utf-8")
    if rng.random() < 0.3:
        listed = dict.fromkeys(names, shard.name)
        outside = rng.choice(["../target/config.json", str(shard), "..", ".", "", "\0", "a/../" + shard.name])
        listed[rng.choice(names)] = outside
        index.write_text(json.dumps({"weight_map": listed}), encoding="utf-8")
    else:
        _file(index, rng, 1)


def _random(module: nn.Module) -> Any:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.1)
    return module
