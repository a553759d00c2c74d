"""Saving is the inverse of loading: the same config and the same bits, under public names."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from specmodels import load_drafter, load_target, save_drafter, save_target
from specmodels.dflash import ConvConfig, LayerKind
from specmodels.layers.rope import RopeConfig

from doubles.tiny import dflash_config, llama_config, qwen3_config, tiny_drafter, tiny_target

ROPES = [
    RopeConfig(theta=10000.0),
    RopeConfig(theta=5e5, kind="linear", factor=2.5),
    RopeConfig(
        theta=5e5, kind="llama3", factor=8.0, original_positions=64, low_freq_factor=1.0, high_freq_factor=4.0
    ),
    RopeConfig(theta=1e6, kind="yarn", factor=4.0, original_positions=64),
    RopeConfig(
        theta=1e6, kind="yarn", factor=4.0, original_positions=32, attention_factor=1.25, truncate=False
    ),
    RopeConfig(theta=1e6, kind="yarn", factor=4.0, original_positions=32, mscale=0.7, mscale_all_dim=1.0),
]


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("form", [qwen3_config, llama_config])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_target_round_trips(tmp_path, rope, form, dtype):
    model = tiny_target(
        form(rope=rope, tie_embeddings=dtype == torch.float32) if form is qwen3_config else form(rope=rope),
        dtype=dtype,
    )
    save_target(model, tmp_path)
    loaded = load_target(tmp_path)
    assert loaded.config == model.config
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in loaded.state_dict().items())
    assert {tensor.dtype for tensor in loaded.state_dict().values()} == {dtype}
    assert torch.equal(loaded.rope.cos_TH, model.rope.cos_TH)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layers": (LayerKind(window=9, causal=True), LayerKind(window=None, causal=False))},
        {"layers": (LayerKind(window=9, causal=False), LayerKind(window=None, causal=False))},
        {"layers": (LayerKind(window=None, causal=True),) * 2},
        {"shifted": True, "embedding_scale": 2.5, "output_multiplier": 0.2, "softcap": 20.0},
        {"draft_vocab_size": 20},
        {"attention_bias": True},
        {"conv": ConvConfig(taps=3, group=4)},
        {"rope": ROPES[3], "block_size": 8},
    ],
)
def test_a_drafter_round_trips(tmp_path, changes):
    target = qwen3_config()
    model = tiny_drafter(target, dflash_config(target, **changes))
    save_drafter(model, target, tmp_path)
    loaded = load_drafter(tmp_path, target).finish()
    assert loaded.config == model.config
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in loaded.state_dict().items())


def test_public_names_are_the_published_ones(tmp_path):
    config = qwen3_config(num_layers=4, tie_embeddings=False)
    save_target(tiny_target(config), tmp_path / "target")
    save_drafter(tiny_drafter(config), config, tmp_path / "drafter")
    layer = """input_layernorm.weight post_attention_layernorm.weight self_attn.q_proj.weight self_attn.k_proj.weight
        self_attn.v_proj.weight self_attn.o_proj.weight self_attn.q_norm.weight self_attn.k_norm.weight
        mlp.gate_proj.weight mlp.up_proj.weight mlp.down_proj.weight""".split()
    target = {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
    target |= {f"model.layers.{index}.{name}" for index in range(4) for name in layer}
    assert set(load_file(tmp_path / "target" / "model.safetensors")) == target
    drafter = {"fc.weight", "hidden_norm.weight", "norm.weight"}
    drafter |= {f"layers.{index}.{name}" for index in range(2) for name in layer}
    assert set(load_file(tmp_path / "drafter" / "model.safetensors")) == drafter


def test_a_drafter_without_a_public_layout_is_refused(tmp_path):
    target = qwen3_config()
    kinds = (LayerKind(window=9, causal=False), LayerKind(window=None, causal=True))
    with pytest.raises(ValueError, match="one causal flag"):
        save_drafter(tiny_drafter(target, dflash_config(target, layers=kinds)), target, tmp_path)
    assert not list(tmp_path.iterdir()), "nothing written"


def test_a_target_without_a_public_layout_is_refused(tmp_path):
    for wrong in (replace(qwen3_config(), mlp_bias=True), replace(qwen3_config(), qkv_bias=True)):
        with pytest.raises(ValueError, match="public layout"):
            save_target(tiny_target(wrong), tmp_path)
    assert not list(tmp_path.iterdir()), "nothing written"


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    from specmodels.checkpoint import files

    path = tmp_path / "model.safetensors"
    files.write_tensors(path, {"a": torch.ones(2)})

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(files, "save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        files.write_tensors(path, {"a": torch.zeros(2)})
    assert torch.equal(load_file(path)["a"], torch.ones(2))
    assert list(tmp_path.iterdir()) == [path]
