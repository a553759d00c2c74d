"""The format of the package speculators in the keys of z-lab's layout, and what it must not leave open."""

import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specmodels import load_drafter, save_drafter
from specmodels.checkpoint.speculators import applies, to_zlab

from doubles.tiny import dflash_config, qwen3_config, tiny_drafter

TARGET = qwen3_config()
CONFIG = {
    "architectures": ["DFlashSpeculator"],
    "aux_hidden_state_layer_ids": [2, 3],
    "base_model_ep_plan": None,
    "block_size": 6,
    "draft_vocab_size": 61,
    "dtype": "float32",
    "has_no_defaults_at_init": False,
    "mask_token_id": 60,
    "sample_from_anchor": False,
    "sliding_window_non_causal": False,
    "speculators_config": {
        "algorithm": "dflash",
        "verifier": {"architectures": [], "name_or_path": "Qwen/Qwen3-8B"},
    },
    "speculators_model_type": "dflash",
    "speculators_version": "0.9.0",
    "target_hidden_size": None,
    "transformer_layer_config": {
        "attention_bias": False,
        "head_dim": 8,
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 40,
        "max_position_embeddings": 256,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "use_cache": True,
        "vocab_size": 61,
    },
}


def config(*, drop: tuple[str, ...] = (), backbone: dict | None = None, **changes: object) -> dict:
    changed = {**copy.deepcopy(CONFIG), **changes}
    changed["transformer_layer_config"] |= backbone or {}
    return {name: value for name, value in changed.items() if name not in drop}


def folder(path: Path, public: dict) -> Path:
    """The weights that go with `CONFIG`, below another config."""
    save_drafter(tiny_drafter(TARGET), TARGET, path)
    (path / "config.json").write_text(json.dumps(public))
    return path


def refused(call, *parts: str) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message, "one line"
    assert all(part in message for part in parts), message


def test_which_configs_are_of_the_format():
    assert applies(CONFIG)
    assert applies({"speculators_model_type": "dflash"})
    assert not applies({"model_type": "qwen3", "dflash_config": {}})


def test_the_translation_in_full():
    before = copy.deepcopy(CONFIG)
    assert to_zlab(CONFIG, "here") == {
        "architectures": ["DFlashSpeculator"],
        "model_type": "qwen3",
        "target_layer_ids": [1, 2],
        "block_size": 6,
        "draft_vocab_size": 61,
        "dtype": "float32",
        "mask_token_id": 60,
        "sample_from_anchor": False,
        "attention_bias": False,
        "head_dim": 8,
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 40,
        "max_position_embeddings": 256,
        "mlp_bias": False,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "vocab_size": 61,
    }
    assert before == CONFIG, "the argument is not written to"


def test_a_folder_loads_like_the_same_drafter_in_the_other_layout(tmp_path):
    loaded = load_drafter(folder(tmp_path, CONFIG), TARGET).finish()
    expected = tiny_drafter(TARGET)
    assert loaded.config == dflash_config(TARGET) == expected.config
    assert all(
        torch.equal(tensor, expected.state_dict()[name]) for name, tensor in loaded.state_dict().items()
    )


SLIDING = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 7}


@pytest.mark.parametrize(
    ("non_causal", "expected"),
    [(True, [(None, False), (7, False)]), (False, [(None, False), (7, True)])],
)
def test_full_layers_see_the_whole_block_whatever_is_said_of_sliding_ones(tmp_path, non_causal, expected):
    public = config(backbone={**SLIDING, "use_sliding_window": False}, sliding_window_non_causal=non_causal)
    kinds = load_drafter(folder(tmp_path, public), TARGET).drafter.config.layers
    assert [(kind.window, kind.causal) for kind in kinds] == expected


def test_silence_on_sliding_layers_counts_only_where_there_are_some(tmp_path):
    quiet = ("sliding_window_non_causal",)
    assert "is_causal" not in to_zlab(config(drop=quiet), "here")
    refused(
        lambda: to_zlab(config(drop=quiet, backbone=SLIDING), "here"), "sliding_window_non_causal: missing"
    )


@pytest.mark.parametrize("kind", ["dflash2", "dspark", "xpress"])
def test_the_layout_of_slots_has_to_be_stated(kind):
    served = {"speculators_model_type": kind, "speculators_config": {"algorithm": kind}}
    refused(
        lambda: to_zlab(config(drop=("sample_from_anchor",), **served), "here"),
        "here: speculators config: sample_from_anchor: missing",
        "state it",
    )
    said = to_zlab(
        config(drop=("sample_from_anchor",), **served), "here", {"sample_from_anchor": kind == "dspark"}
    )
    assert said["sample_from_anchor"] is (kind == "dspark")
    assert said.get("projector_type") == ("dspark" if kind == "dspark" else None)


def test_the_first_plain_drafters_had_one_layout_alone(tmp_path):
    old = config(drop=("sample_from_anchor", "sliding_window_non_causal"), num_hidden_layers=2)
    assert not load_drafter(folder(tmp_path, old), TARGET).finish().config.shifted


@pytest.mark.parametrize(
    ("public", "parts"),
    [
        (config(drop=("speculators_model_type",)), ("speculators_model_type: missing",)),
        (config(drop=("transformer_layer_config",)), ("transformer_layer_config: missing",)),
        (
            config(speculators_model_type="eagle3"),
            ("got 'eagle3', expected dflash, dflash2, dspark, xpress",),
        ),
        (config(speculators_config={"algorithm": "dspark"}), ("algorithm: got 'dspark', expected 'dflash'",)),
        (config(speculators_config="dflash"), ("speculators_config: got 'dflash', expected a mapping",)),
        (config(backbone={"model_type": "gpt_oss"}), ("model_type: got 'gpt_oss', expected qwen3 or llama",)),
        (config(aux_hidden_state_layer_ids=None), ("aux_hidden_state_layer_ids: missing",)),
        (config(aux_hidden_state_layer_ids=[0, 2]), ("got [0, 2], expected ids of at least 1",)),
        (config(drop=("draft_vocab_size",)), ("draft_vocab_size: missing",)),
        (config(num_hidden_layers=3), ("num_hidden_layers: got 2 and 3, expected one value",)),
        (
            config(is_causal=True, backbone=SLIDING, sliding_window_non_causal=True),
            ("is_causal: got False and True",),
        ),
    ],
)
def test_a_config_that_says_too_little_or_two_things(public, parts):
    refused(lambda: to_zlab(public, "here"), "here: speculators config: ", *parts)


@pytest.mark.parametrize(
    ("public", "parts"),
    [
        (config(mask_token_id=None), ("mask_token_id or",)),
        (config(block_size=None), ("block_size: missing",)),
        (config(aux_hidden_state_layer_ids=[2, 5]), ("target_layer_ids: got [1, 4]", "below 4")),
        (config(backbone={"vocab_size": 62}), ("vocab_size: got 62, expected the target's 61",)),
        (config(backbone={"num_experts": 8}), ("num_experts = 8",)),
        (config(strange=1), ("strange = 1",)),
    ],
)
def test_what_the_layout_s_own_checks_find(tmp_path, public, parts):
    refused(lambda: load_drafter(folder(tmp_path, public), TARGET).finish(), *parts)


def test_a_map_of_a_vocabulary_that_is_not_reduced(tmp_path):
    place = folder(tmp_path, CONFIG)
    tensors = dict(load_all(place))
    save_file({**tensors, "d2t": torch.zeros(61, dtype=torch.int64)}, place / "model.safetensors")
    load_drafter(place, TARGET).finish()
    save_file({**tensors, "d2t": torch.ones(61, dtype=torch.int64)}, place / "model.safetensors")
    refused(lambda: load_drafter(place, TARGET), "d2t: got offsets, expected none or zeros")


def load_all(place: Path) -> dict[str, torch.Tensor]:
    return load_file(place / "model.safetensors")
