"""Folders of LLaDA2 in their public layouts: exact names, experts apart and merged, and what is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from specmodels import load_llada2, save_llada2
from specmodels.checkpoint import llada2
from specmodels.checkpoint.keys import Keys
from specmodels.llada2 import Llada2

from doubles.tiny import llada2_config, tiny_llada2

# as the published files of the mini model have it
MINI = {
    "architectures": ["LLaDA2MoeModelLM"],
    "attention_dropout": 0.0,
    "auto_map": {"AutoModelForCausalLM": "modeling_llada2_moe.LLaDA2MoeModelLM"},
    "eos_token_id": 156892,
    "first_k_dense_replace": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 5120,
    "max_position_embeddings": 32768,
    "model_type": "llada2_moe",
    "moe_intermediate_size": 512,
    "moe_router_enable_expert_bias": True,
    "n_group": 8,
    "norm_head": False,
    "norm_topk_prob": True,
    "num_attention_heads": 16,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 20,
    "num_key_value_heads": 4,
    "num_shared_experts": 1,
    "pad_token_id": 156892,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 600000,
    "routed_scaling_factor": 2.5,
    "router_dtype": "fp32",
    "score_function": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 4,
    "torch_dtype": "bfloat16",
    "use_bias": False,
    "use_cache": True,
    "use_qkv_bias": False,
    "vocab_size": 157184,
}
FLASH = MINI | {
    "hidden_size": 4096,
    "intermediate_size": 9216,
    "max_position_embeddings": 16384,
    "moe_intermediate_size": 1024,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
}
# names and shapes of the mini model's first two layers and what is outside of them
NAMES = {
    "model.word_embeddings.weight": [157184, 2048],
    "model.norm.weight": [2048],
    "lm_head.weight": [157184, 2048],
    "model.layers.0.input_layernorm.weight": [2048],
    "model.layers.0.attention.query_key_value.weight": [3072, 2048],
    "model.layers.0.attention.query_layernorm.weight": [128],
    "model.layers.0.attention.key_layernorm.weight": [128],
    "model.layers.0.attention.dense.weight": [2048, 2048],
    "model.layers.0.post_attention_layernorm.weight": [2048],
    "model.layers.0.mlp.gate_proj.weight": [5120, 2048],
    "model.layers.0.mlp.up_proj.weight": [5120, 2048],
    "model.layers.0.mlp.down_proj.weight": [2048, 5120],
    "model.layers.1.input_layernorm.weight": [2048],
    "model.layers.1.attention.query_key_value.weight": [3072, 2048],
    "model.layers.1.attention.query_layernorm.weight": [128],
    "model.layers.1.attention.key_layernorm.weight": [128],
    "model.layers.1.attention.dense.weight": [2048, 2048],
    "model.layers.1.post_attention_layernorm.weight": [2048],
    "model.layers.1.mlp.gate.weight": [256, 2048],
    "model.layers.1.mlp.gate.expert_bias": [256],
    "model.layers.1.mlp.shared_experts.gate_proj.weight": [512, 2048],
    "model.layers.1.mlp.shared_experts.up_proj.weight": [512, 2048],
    "model.layers.1.mlp.shared_experts.down_proj.weight": [2048, 512],
}
EACH_EXPERT = {"gate_proj": [512, 2048], "up_proj": [512, 2048], "down_proj": [2048, 512]}


def refused(call, *parts: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message, "one line"
    for part in parts:
        assert part in message, message


@pytest.fixture
def folder(tmp_path):
    save_llada2(tiny_llada2(), tmp_path)
    return tmp_path


def edit_config(folder, *, drop=(), **changes) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in config.items() if name not in drop}))


def edit_tensors(folder, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("public", [MINI, FLASH], ids=["mini", "flash"])
def test_published_configs_are_understood_to_the_last_key(public):
    keys = Keys(public, "config.json")
    config = llada2.config_from_keys(keys)
    keys.finish()
    assert config.rotary_dim == 64
    assert (config.num_experts, config.experts_per_row) == (256, 8)
    assert config.mask_token_id == 156895
    assert config.expert_size == public["moe_intermediate_size"]


def test_published_names_and_shapes():
    """The tables name exactly the tensors of the published files, without memory for any of them."""
    config = llada2.config_from_keys(Keys(MINI | {"num_hidden_layers": 2}, "config.json"))
    with torch.device("meta"):
        state = Llada2(config).state_dict()
    found = {}
    for ours, row in llada2.rows(config).items():
        if ours in state:
            shapes = row.shapes(state[ours].shape, len(row.theirs))
            found |= dict(zip(row.theirs, map(list, shapes), strict=True))
    named = {name if name == "lm_head.weight" else f"model.{name}": shape for name, shape in found.items()}
    experts = {
        f"model.layers.1.mlp.experts.{e}.{part}.weight": shape
        for e in range(256)
        for part, shape in EACH_EXPERT.items()
    }
    assert named == NAMES | experts


def test_what_was_saved_loads(folder):
    expected = tiny_llada2().state_dict()
    model = load_llada2(folder)
    assert model.config == llada2_config()
    assert model.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_merged_experts_and_the_longer_prefix_load_too(folder):
    def merge(tensors):
        for layer in (1, 2):
            for part in EACH_EXPERT:
                at = f"model.layers.{layer}.mlp.experts."
                each = [tensors.pop(f"{at}{e}.{part}.weight") for e in range(12)]
                tensors[f"{at}{part}"] = torch.stack(each)
        for name in [name for name in tensors if name.startswith("model.")]:
            tensors[name.replace("model.", "model.language_model.", 1)] = tensors.pop(name)

    edit_tensors(folder, merge)
    expected = tiny_llada2().state_dict()
    found = load_llada2(folder).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_routers_keep_single_precision_in_a_narrow_model(folder):
    model = load_llada2(folder, dtype=torch.bfloat16)
    wide = {name for name, tensor in model.state_dict().items() if tensor.dtype == torch.float32}
    assert wide == {f"layers.{layer}.mlp.router.{kind}" for layer in (1, 2) for kind in ("weight", "bias")}
    save_llada2(model, folder / "again")
    stored = load_file(folder / "again" / "model.safetensors")
    assert stored["model.layers.1.mlp.gate.expert_bias"].dtype == torch.float32
    assert stored["model.layers.1.mlp.experts.0.up_proj.weight"].dtype == torch.bfloat16


def test_a_missing_bias_of_the_router(folder):
    edit_tensors(folder, lambda tensors: tensors.pop("model.layers.2.mlp.gate.expert_bias"))
    refused(lambda: load_llada2(folder), "layers.2.mlp.gate.expert_bias: missing", "[12]")


def test_a_missing_and_an_extra_expert(folder):
    def swap(tensors):
        at = "model.layers.1.mlp.experts."
        tensors[f"{at}12.up_proj.weight"] = tensors.pop(f"{at}3.up_proj.weight")

    edit_tensors(folder, swap)
    refused(lambda: load_llada2(folder), "layers.1.mlp.experts.3.up_proj.weight: missing")


def test_an_expert_of_another_shape(folder):
    def cut(tensors):
        name = "model.layers.1.mlp.experts.3.down_proj.weight"
        tensors[name] = tensors[name][:, :-1].contiguous()

    edit_tensors(folder, cut)
    refused(lambda: load_llada2(folder), "experts.3.down_proj.weight", "[32, 7]", "[32, 8]")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"model_type": "qwen3"}, ("model_type", "qwen3", "llada2_moe")),
        ({"norm_head": True}, ("norm_head", "True")),
        ({"score_function": "softmax"}, ("score_function", "softmax", "sigmoid")),
        ({"use_qkv_bias": True}, ("use_qkv_bias",)),
        ({"expert_capacity": 48}, ("expert_capacity", "48")),
        ({"delete_token_id": 3}, ("delete_token_id",)),
        ({"n_group": 5}, ("n_group", "5", "12")),
        ({"topk_group": 9}, ("topk_group", "9", "4")),
        ({"num_experts_per_tok": 7}, ("num_experts_per_tok", "7", "6")),
        ({"partial_rotary_factor": 0.4}, ("partial_rotary_factor", "3 of 8")),
        ({"mask_token_id": 53}, ("mask_token_id", "53")),
        ({"mask_token_id": None}, ("mask_token_id", "missing")),
        ({"surprise": 1}, ("surprise",)),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_config_that_means_something_else(folder, changes, parts):
    edit_config(folder, **changes)
    refused(lambda: load_llada2(folder), *parts)
