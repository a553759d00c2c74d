"""Strict loading: one test per way in which a folder can be wrong, and the good ways in."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specmodels import load_drafter, load_target, save_drafter, save_target
from specmodels.dflash import ConvConfig
from specmodels.kv import RowsMemory
from specmodels.qwen3 import Qwen3Config

from doubles.tiny import dflash_config, llama_config, qwen3_config, tiny_drafter, tiny_target

TARGET = qwen3_config()


def edit_config(folder: Path, *, drop: tuple[str, ...] = (), **changes: object) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in config.items() if name not in drop}))


def edit_tensors(folder: Path, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.fixture
def target_folder(tmp_path: Path) -> Path:
    save_target(tiny_target(TARGET), tmp_path / "target")
    return tmp_path / "target"


@pytest.fixture
def drafter_folder(tmp_path: Path) -> Path:
    save_drafter(tiny_drafter(TARGET), TARGET, tmp_path / "drafter")
    return tmp_path / "drafter"


def refused(call, *parts: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message, "one line"
    for part in parts:
        assert part in message, message


# The good ways in


def test_a_target_is_built_without_memory_and_filled(target_folder):
    model = load_target(target_folder)
    expected = tiny_target(TARGET).state_dict()
    assert model.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not model.rope.cos_TH.is_meta
    ids, places = torch.tensor([[5, 6, 7]]), torch.arange(3)[None]
    direct = tiny_target(TARGET)(ids, places, RowsMemory()).hidden_BQD
    assert torch.equal(model(ids, places, RowsMemory()).hidden_BQD, direct)


def test_the_dtype_is_the_file_s_unless_one_is_asked_for(target_folder):
    assert load_target(target_folder).embedding.dtype == torch.float32
    half = load_target(target_folder, dtype=torch.bfloat16)
    assert {tensor.dtype for tensor in half.state_dict().values()} == {torch.bfloat16}
    assert half.rope.cos_TH.dtype == torch.bfloat16
    edit_config(target_folder, drop=("dtype",), torch_dtype="bfloat16")
    assert load_target(target_folder).embedding.dtype == torch.bfloat16
    edit_config(target_folder, drop=("torch_dtype",))
    refused(lambda: load_target(target_folder), "dtype", "missing")


def shard(folder: Path) -> None:
    """Split one file in two, with an index."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    index = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-{number:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def test_shards_load_like_one_file(target_folder):
    whole = load_target(target_folder).state_dict()
    shard(target_folder)
    assert all(
        torch.equal(tensor, whole[name]) for name, tensor in load_target(target_folder).state_dict().items()
    )


@pytest.mark.parametrize("old", [True, False])
def test_both_spellings_of_the_rotation(target_folder, old):
    if old:
        edit_config(target_folder, drop=("rope_parameters", "dtype"))
    else:
        edit_config(target_folder, drop=("rope_theta", "rope_scaling", "torch_dtype"))
    assert load_target(target_folder).config == TARGET


def test_stacked_matrices_of_the_file_load_too(target_folder):
    def stack(tensors):
        for layer in range(TARGET.num_layers):
            at = f"model.layers.{layer}."
            tensors[f"{at}self_attn.qkv_proj.weight"] = torch.cat(
                [tensors.pop(f"{at}self_attn.{part}_proj.weight") for part in "qkv"]
            )
            tensors[f"{at}mlp.gate_up_proj.weight"] = torch.cat(
                [tensors.pop(f"{at}mlp.{part}_proj.weight") for part in ("gate", "up")]
            )

    edit_tensors(target_folder, stack)
    expected = tiny_target(TARGET).state_dict()
    assert all(
        torch.equal(tensor, expected[name])
        for name, tensor in load_target(target_folder).state_dict().items()
    )


def test_rotary_tables_and_a_copy_of_a_tied_head_are_skipped(target_folder):
    def add(tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    edit_tensors(target_folder, add)
    assert load_target(target_folder).untied_head is None


# Wrong tensors


def test_a_missing_tensor(target_folder):
    edit_tensors(target_folder, lambda tensors: tensors.pop("model.layers.2.self_attn.k_proj.weight"))
    refused(
        lambda: load_target(target_folder),
        "layers.2.self_attn.k_proj.weight: missing",
        "layers.2.attention.qkv.weight [64, 32]",
    )


def test_an_extra_tensor(target_folder):
    edit_tensors(
        target_folder, lambda tensors: tensors.update({"model.layers.9.mlp.extra": torch.ones(2, 3)})
    )
    refused(lambda: load_target(target_folder), "1 unexpected tensor", "layers.9.mlp.extra [2, 3]")


def test_a_wrong_shape(target_folder):
    edit_tensors(target_folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(31)}))
    refused(lambda: load_target(target_folder), "norm.weight: got shape [31], expected [32] for norm.weight")


def test_parts_of_a_stack_with_swapped_shapes(target_folder):
    """The stacked matrix would have the right size; only its parts are wrong."""

    def swap(tensors):
        at = "model.layers.0.self_attn."
        query, key = tensors[at + "q_proj.weight"], tensors[at + "k_proj.weight"]
        tensors[at + "q_proj.weight"], tensors[at + "k_proj.weight"] = key.clone(), query.clone()

    edit_tensors(target_folder, swap)
    refused(lambda: load_target(target_folder), "_proj.weight: got shape", "layers.0.attention.qkv.weight")


def test_a_wrong_type(target_folder):
    edit_tensors(
        target_folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(32, dtype=torch.int8)})
    )
    refused(lambda: load_target(target_folder), "norm.weight: got torch.int8, expected a floating type")


def test_values_that_are_not_finite(target_folder):
    edit_tensors(target_folder, lambda tensors: tensors["model.norm.weight"].__setitem__(3, float("nan")))
    refused(lambda: load_target(target_folder), "norm.weight: got values that are not finite")


def test_a_tied_head_with_values_of_its_own(target_folder):
    edit_tensors(target_folder, lambda tensors: tensors.update({"lm_head.weight": torch.ones(61, 32)}))
    refused(lambda: load_target(target_folder), "lm_head.weight: got other values than embed_tokens.weight")


def test_a_tensor_with_and_without_prefix(target_folder):
    edit_tensors(target_folder, lambda tensors: tensors.update({"norm.weight": torch.ones(32)}))
    refused(lambda: load_target(target_folder), "norm.weight", "as norm.weight")


# Wrong files


def test_a_missing_shard(target_folder):
    shard(target_folder)
    (target_folder / "model-00002-of-00002.safetensors").unlink()
    refused(lambda: load_target(target_folder), "missing 1 of 2 shards", "model-00002-of-00002.safetensors")


def test_an_index_that_names_another_shard(target_folder):
    shard(target_folder)
    path = target_folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.norm.weight"] = "model-00001-of-00002.safetensors"
    path.write_text(json.dumps(index))
    message = "model.norm.weight is in model-00002-of-00002.safetensors but the index says model-00001"
    stored = load_file(target_folder / "model-00001-of-00002.safetensors")
    if "model.norm.weight" in stored:
        index["weight_map"]["model.norm.weight"] = "model-00002-of-00002.safetensors"
        path.write_text(json.dumps(index))
        message = "model.norm.weight is in model-00001-of-00002.safetensors but the index says model-00002"
    refused(lambda: load_target(target_folder), message)


def test_a_truncated_file(target_folder):
    path = target_folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    refused(
        lambda: load_target(target_folder), f"truncated, got {len(whole) - 100} bytes, expected {len(whole)}"
    )


def test_a_file_cut_inside_its_header(target_folder):
    path = target_folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:200])
    refused(lambda: load_target(target_folder), "truncated, got 200 bytes")


def test_a_pointer_instead_of_the_weights(target_folder):
    (target_folder / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
    )
    refused(lambda: load_target(target_folder), "unreadable header", "download it again")


def test_a_header_that_is_no_json(target_folder):
    (target_folder / "model.safetensors").write_bytes((8).to_bytes(8, "little") + b"{garbage" + b"\0" * 64)
    refused(lambda: load_target(target_folder), "unreadable header")


def test_weights_in_another_format(target_folder):
    (target_folder / "model.safetensors").rename(target_folder / "pytorch_model.bin")
    refused(lambda: load_target(target_folder), "pytorch_model.bin", "convert the weights to safetensors")


def test_no_config(tmp_path):
    refused(lambda: load_target(tmp_path), "config.json: missing")


def test_a_config_that_is_no_json(target_folder):
    (target_folder / "config.json").write_text("{")
    refused(lambda: load_target(target_folder), "not readable as JSON")


# Wrong config keys


def test_an_unknown_config_key(target_folder):
    edit_config(target_folder, expert_count=8)
    refused(lambda: load_target(target_folder), "unknown config key(s): expert_count = 8")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"model_type": "mixtral"}, ("model_type: got 'mixtral', expected qwen3 or llama",)),
        ({"hidden_act": "gelu"}, ("hidden_act: got 'gelu', expected 'silu'",)),
        (
            {"use_sliding_window": True, "sliding_window": 64},
            ("use_sliding_window: got True, expected False",),
        ),
        ({"layer_types": ["sliding_attention"] * 4}, ("layer_types", "expected 4 times full_attention")),
        ({"quantization_config": {"bits": 4}}, ("quantization_config", "unquantised")),
        ({"num_key_value_heads": 3}, ("num_key_value_heads: got 3, expected a divisor of 4",)),
        ({"hidden_size": "32"}, ("hidden_size: got '32', expected an integer",)),
        ({"hidden_size": True}, ("hidden_size: got True, expected an integer",)),
        ({"num_hidden_layers": 0}, ("num_hidden_layers: got 0, expected an integer of at least 1",)),
        ({"rms_norm_eps": None}, ("rms_norm_eps: missing",)),
        ({"attention_bias": 1}, ("attention_bias: got 1, expected true or false",)),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, ("rope_type", "default")),
        ({"rope_theta": 5.0}, ("rope_theta", "5.0", "10000.0")),
        ({"torch_dtype": "float8_e4m3fn", "dtype": None}, ("dtype: got 'float8_e4m3fn'",)),
    ],
)
def test_a_config_that_the_model_cannot_honour(target_folder, changes, parts):
    edit_config(target_folder, **changes)
    refused(lambda: load_target(target_folder), "config.json", *parts)


@pytest.mark.parametrize(
    ("rope", "part"),
    [
        (
            {"rope_type": "dynamic", "factor": 2.0},
            "rope_type: got 'dynamic', expected default, linear, llama3 or yarn",
        ),
        ({"rope_type": "linear"}, "factor: missing"),
        ({"rope_type": "llama3", "factor": 8.0}, "original_max_position_embeddings: missing"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: got 0.5"),
        ({"rope_type": "yarn", "factor": 0.5}, "factor: got 0.5, expected a number of at least 1"),
        ({"rope_type": "yarn", "factor": 2.0, "long_factor": [1.0]}, "long_factor"),
    ],
)
def test_a_rotation_that_the_model_cannot_honour(target_folder, rope, part):
    edit_config(target_folder, drop=("rope_scaling",), rope_parameters={"rope_theta": 1e4, **rope})
    refused(lambda: load_target(target_folder), "rope", part)


# Drafters


def test_a_plain_drafter_leaves_nothing(drafter_folder):
    drafter = load_drafter(drafter_folder, TARGET).finish()
    expected = tiny_drafter(TARGET).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in drafter.state_dict().items())
    assert drafter.config == dflash_config(TARGET)


def test_keys_of_a_section_and_of_the_top_level_are_one(drafter_folder):
    edit_config(drafter_folder, drop=("block_size",))
    assert load_drafter(drafter_folder, TARGET).drafter.config.block_size == 6
    edit_config(drafter_folder, block_size=6, dflash_config={"mask_token_id": 60, "target_layer_ids": [1, 2]})
    assert load_drafter(drafter_folder, TARGET).drafter.config.block_size == 6
    edit_config(
        drafter_folder, dflash_config={"mask_token_id": 60, "target_layer_ids": [1, 2], "block_size": 8}
    )
    refused(lambda: load_drafter(drafter_folder, TARGET), "block_size", "8", "6")


def with_head(folder: Path) -> None:
    edit_tensors(folder, lambda tensors: tensors.update({"prefix_gru.weight_hh_l0": torch.ones(6, 2)}))
    path = folder / "config.json"
    inner = json.loads(path.read_text())["dflash_config"]
    edit_config(
        folder, dflash_config={**inner, "projector_type": "domino", "shift_label": True, "emb_dim": 4}
    )


def test_a_head_s_share_is_handed_over_and_claimed_once(drafter_folder):
    with_head(drafter_folder)
    checkpoint = load_drafter(drafter_folder, TARGET)
    assert list(checkpoint.leftover_tensors) == ["prefix_gru.weight_hh_l0"]
    assert checkpoint.leftover_config == {"projector_type": "domino", "emb_dim": 4}
    assert checkpoint.drafter.config.shifted
    refused(checkpoint.finish, "1 unexpected tensor", "prefix_gru.weight_hh_l0 [6, 2]")
    rest = checkpoint.claimed(tensors=["prefix_gru.weight_hh_l0"])
    refused(rest.finish, "unknown config key(s): emb_dim = 4, projector_type = 'domino'")
    refused(
        lambda: rest.claimed(tensors=["prefix_gru.weight_hh_l0"]),
        "prefix_gru.weight_hh_l0",
        "claimed already",
    )
    done = rest.claimed(keys=["projector_type", "emb_dim"])
    assert done.finish() is checkpoint.drafter


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"projector_type": "domino"}, "shift_label"),
        ({"architectures": ["Qwen3DSparkModel"]}, "sample_from_anchor"),
    ],
)
def test_the_layout_of_slots_is_never_guessed(drafter_folder, changes, needed):
    edit_config(drafter_folder, **changes)
    refused(lambda: load_drafter(drafter_folder, TARGET), f"{needed}: missing", "layout of the slots")
    assert load_drafter(drafter_folder, TARGET, stated={needed: True}).drafter.config.shifted
    assert not load_drafter(drafter_folder, TARGET, stated={needed: False}).drafter.config.shifted


def test_what_the_caller_states_must_not_contradict_the_file(drafter_folder):
    edit_config(drafter_folder, sample_from_anchor=False)
    refused(
        lambda: load_drafter(drafter_folder, TARGET, stated={"sample_from_anchor": True}),
        "sample_from_anchor",
        "stated",
    )


def test_copies_of_the_target_s_tables_are_checked(drafter_folder):
    target = tiny_target(TARGET)
    edit_tensors(
        drafter_folder, lambda tensors: tensors.update({"embed_tokens.weight": target.embedding.clone()})
    )
    checkpoint = load_drafter(drafter_folder, TARGET)
    assert checkpoint.without_copies(target).finish() is checkpoint.drafter
    refused(lambda: checkpoint.without_copies(tiny_target(TARGET, seed=5)), "embed_tokens.weight", "a copy")


def test_a_reduced_vocabulary_holds_offsets(tmp_path):
    config = dflash_config(TARGET, draft_vocab_size=20)
    drafter = tiny_drafter(TARGET, config)
    save_drafter(drafter, TARGET, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    # rows stand for ids 0, 3, 6, ...
    assert stored["d2t"].tolist() == [2 * row for row in range(20)]
    loaded = load_drafter(tmp_path, TARGET).finish()
    assert loaded.draft_to_target_v.tolist() == [3 * row for row in range(20)]
    hidden, head = torch.randn(1, 2, 32), tiny_target(TARGET).head_VD
    assert torch.equal(loaded.logits(hidden, head), drafter.logits(hidden, head))
    assert loaded.logits(hidden, head).shape == (1, 2, 20)
    edit_tensors(tmp_path, lambda tensors: tensors.update({"d2t": torch.arange(20) * 3}))
    refused(lambda: load_drafter(tmp_path, TARGET), "d2t", "does the file hold ids instead?")
    edit_tensors(tmp_path, lambda tensors: tensors.pop("d2t"))
    refused(lambda: load_drafter(tmp_path, TARGET), "d2t: missing")


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"hidden_size": 64}, "hidden"),
        ({"vocab_size": 62}, "vocab_size: got 62, expected the target's 61"),
        ({"num_target_layers": 5}, "num_target_layers: got 5, expected the target's 4"),
        ({"target_layer_ids": [1, 2, 4]}, "target_layer_ids"),
        ({"mask_token_id": 61}, "mask_token_id"),
        ({"attention_sink_bias": True}, "attention_sink_bias: got True"),
        ({"attention_value_scale": 0.5}, "attention_value_scale: got 0.5"),
        ({"use_gemma_norm": True}, "use_gemma_norm: got True"),
        ({"is_neox_style": False}, "is_neox_style: got False"),
        ({"hidden_act": "swigluoai"}, "hidden_act: got 'swigluoai'"),
        ({"logit_scale": 2.0}, "logit_scale: got 2.0"),
        ({"output_multiplier": 0.0}, "output_multiplier: got 0.0, expected a number above 0"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "got 'linear_attention'"),
        (
            {"layer_types": ["full_attention", "sliding_attention"], "use_sliding_window": None},
            "sliding_window: missing, expected the width",
        ),
        ({"conv_kernel_size": 2}, "conv_kernel_size and conv_group_size: got 2 and 0"),
        ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "rope_dim": 4}}, "rope_dim: got 4"),
        ({"speculators_model_type": "dflash"}, "speculators config"),
        (
            {"block_size": 1, "dflash_config": {"mask_token_id": 60}},
            "block_size: got 1, expected an integer of at least 2",
        ),
    ],
)
def test_a_drafter_config_that_cannot_be_honoured(drafter_folder, changes, part):
    edit_config(drafter_folder, **changes)
    refused(lambda: load_drafter(drafter_folder, TARGET), part)


def test_a_separate_mask_row_is_refused(drafter_folder):
    (drafter_folder / "mask_embedding.pt").write_bytes(b"")
    refused(lambda: load_drafter(drafter_folder, TARGET), "mask_embedding.pt")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [(None, False), (None, False)]),
        ({"is_causal": True}, [(None, True), (None, True)]),
        (
            {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 7},
            [(None, False), (7, True)],
        ),
        (
            {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 7, "is_causal": False},
            [(None, False), (7, False)],
        ),
        ({"use_swa": True, "swa_window_size": 9}, [(9, True), (9, True)]),
        ({"layer_types": None, "causal": True}, [(None, True), (None, True)]),
    ],
)
def test_which_layers_slide_and_which_look_back_only(drafter_folder, changes, expected):
    edit_config(drafter_folder, drop=("use_sliding_window",), **changes)
    kinds = load_drafter(drafter_folder, TARGET).drafter.config.layers
    assert [(kind.window, kind.causal) for kind in kinds] == expected


def test_layers_to_tap_that_a_file_leaves_out(drafter_folder):
    from specmodels.checkpoint.dflash import default_target_layers

    assert default_target_layers(36, 5) == (1, 9, 17, 25, 33)
    assert default_target_layers(64, 5) == (1, 16, 31, 46, 61)
    assert default_target_layers(52, 5) == (1, 13, 25, 37, 49)
    assert default_target_layers(36, 1) == (18,)


def test_convolution_tensors_follow_the_config(tmp_path):
    config = dflash_config(TARGET, conv=ConvConfig(taps=2, group=8))
    save_drafter(tiny_drafter(TARGET, config), TARGET, tmp_path)
    assert load_drafter(tmp_path, TARGET).finish().config == config
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["layers.0.attention_conv.base_kernel"].shape == (2, 2, 32)
    assert stored["layers.1.mlp_conv.kernel_projection.weight"].shape == (2 * 2 * 4, 32)
    path = tmp_path / "config.json"
    inner = json.loads(path.read_text())["dflash_config"]
    del inner["conv_kernel_size"], inner["conv_group_size"]
    edit_config(tmp_path, dflash_config=inner)
    refused(load_drafter(tmp_path, TARGET).finish, "8 unexpected tensor(s)", "attention_conv")


def test_alias_names_and_prefix_of_a_drafter(drafter_folder):
    def rename(tensors):
        tensors["encoder.fc.weight"] = tensors.pop("fc.weight")
        tensors["encoder.output_norm_enc.weight"] = tensors.pop("hidden_norm.weight")
        for name in list(tensors):
            tensors[f"model.{name}"] = tensors.pop(name)

    edit_tensors(drafter_folder, rename)
    expected = tiny_drafter(TARGET).state_dict()
    loaded = load_drafter(drafter_folder, TARGET).finish().state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.items())


def test_the_llama_form(tmp_path):
    config: Qwen3Config = llama_config(qkv_bias=True, output_bias=True, mlp_bias=True)
    save_target(tiny_target(config), tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["architectures"] == ["LlamaForCausalLM"]
    assert load_target(tmp_path).config == config
    edit_config(tmp_path, drop=("head_dim", "num_key_value_heads"))
    refused(lambda: load_target(tmp_path), "got shape")  # all heads would be key heads
