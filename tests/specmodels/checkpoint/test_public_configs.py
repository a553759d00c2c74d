"""Configurations as public repositories hold them: every key has to find its part."""

import pytest

from specmodels.checkpoint import dflash, qwen3
from specmodels.checkpoint.keys import Keys

# shared by the targets below and by drafters, whose files repeat their target's keys
_COMMON = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
}
QWEN3_8B = _COMMON | {
    "architectures": ["Qwen3ForCausalLM"],
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "max_position_embeddings": 40960,
    "max_window_layers": 36,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
LLAMA_8B = _COMMON | {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
DFLASH_8B = QWEN3_8B | {
    "architectures": ["DFlashDraftModel"],
    "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    "dtype": "bfloat16",
    "layer_types": ["full_attention"] * 5,
    "max_window_layers": 5,
    "num_hidden_layers": 5,
    "num_target_layers": 36,
}


def target(config) -> qwen3.Qwen3Config:
    keys = Keys(config, "config.json")
    found = qwen3.config_from_keys(keys)
    keys.finish()
    return found


def test_qwen3():
    config = target(QWEN3_8B)
    assert (config.head_dim, config.num_layers, config.qk_norm, config.tie_embeddings) == (
        128,
        36,
        True,
        False,
    )
    assert config.rope.kind == "default"
    longer = target(
        QWEN3_8B
        | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}
    )
    assert longer.max_positions == 131072


def test_llama():
    config = target(LLAMA_8B)
    assert (config.head_dim, config.qk_norm, config.rope.kind) == (128, False, "llama3")
    assert config.rope.original_positions == 8192


def drafter(config, **stated):
    keys = Keys(config, "config.json", sections=dflash.SECTIONS, stated=stated)
    return dflash.config_from_keys(keys, target(QWEN3_8B)), keys.left()


def test_dflash():
    config, left = drafter(DFLASH_8B)
    assert not left
    assert (config.block_size, config.mask_token_id, config.shifted) == (16, 151669, False)
    assert config.target_layers == (1, 9, 17, 25, 33)
    assert [(kind.window, kind.causal) for kind in config.layers] == [(None, False)] * 5


def test_domino_leaves_its_head():
    inner = DFLASH_8B["dflash_config"] | {
        "projector_type": "domino",
        "shift_label": True,
        "pure_draft_prefix_len": 1,
        "gru_hidden_dim": 1024,
        "emb_dim": 256,
    }
    config, left = drafter(DFLASH_8B | {"dflash_config": inner})
    assert config.shifted
    assert left == {
        "projector_type": "domino",
        "pure_draft_prefix_len": 1,
        "gru_hidden_dim": 1024,
        "emb_dim": 256,
    }


def test_dspark_needs_a_word_about_its_slots():
    config = {name: value for name, value in DFLASH_8B.items() if name != "dflash_config"} | {
        "architectures": ["Qwen3DSparkModel"],
        "block_size": 7,
        "mask_token_id": 151669,
        "target_layer_ids": [1, 9, 17, 25, 33],
        "num_anchors": 512,
        "markov_rank": 256,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    }
    with pytest.raises(ValueError, match="sample_from_anchor: missing"):
        drafter(config)
    found, left = drafter(config, sample_from_anchor=True)
    assert found.num_drafted == 7
    assert set(left) == {
        "markov_rank",
        "markov_head_type",
        "enable_confidence_head",
        "confidence_head_with_markov",
    }
