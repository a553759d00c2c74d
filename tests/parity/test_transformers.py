"""Qwen3 and Llama forms against transformers, in both directions: folders that we write, and folders that it writes.

Catches a wrong norm, head order, rotation, scale or tensor name, on either way through a file.
"""

import json

import pytest
import torch

from specmodels import load_target, save_target
from specmodels.kv import CacheMemory, RowsMemory
from specmodels.layers.rope import RopeConfig

from doubles.tiny import llama_config, qwen3_config, tiny_target

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

# fp32 on logits of size 10: both sides round each of some hundred operations differently
LOGITS = 1e-5
ROWS = 40

YARN = RopeConfig(theta=1e4, kind="yarn", factor=4.0, original_positions=16)
LLAMA3 = RopeConfig(
    theta=1e4, kind="llama3", factor=8.0, original_positions=32, low_freq_factor=1.0, high_freq_factor=4.0
)
CONFIGS = {
    "qwen3-tied": qwen3_config(),
    "qwen3-untied": qwen3_config(tie_embeddings=False),
    "qwen3-bias": qwen3_config(qkv_bias=True, output_bias=True),
    "qwen3-all-heads": qwen3_config(num_kv_heads=4),
    "qwen3-one-kv-head": qwen3_config(num_kv_heads=1, head_dim=12),
    "qwen3-yarn": qwen3_config(rope=YARN, max_positions=64),
    "qwen3-yarn-scaled": qwen3_config(
        rope=RopeConfig(
            theta=1e4,
            kind="yarn",
            factor=4.0,
            original_positions=16,
            mscale=0.7,
            mscale_all_dim=0.9,
            truncate=False,
        ),
        max_positions=64,
    ),
    "qwen3-yarn-factor": qwen3_config(
        rope=RopeConfig(
            theta=1e4,
            kind="yarn",
            factor=2.0,
            original_positions=32,
            attention_factor=1.25,
            beta_fast=16.0,
            beta_slow=2.0,
        ),
        max_positions=64,
    ),
    "qwen3-linear": qwen3_config(rope=RopeConfig(theta=1e4, kind="linear", factor=2.5)),
    "llama-untied": llama_config(),
    "llama-tied": qwen3_config(qk_norm=False),
    "llama-bias": llama_config(qkv_bias=True, output_bias=True, mlp_bias=True),
    "llama-llama3": llama_config(rope=LLAMA3),
    "llama-yarn": llama_config(rope=YARN, max_positions=64),
}


def ids(vocab: int, batch: int = 2) -> torch.Tensor:
    return torch.randint(vocab, (batch, ROWS), generator=torch.Generator().manual_seed(0))


def places(batch: int, rows: int = ROWS) -> torch.Tensor:
    return torch.arange(rows).expand(batch, rows)


@pytest.fixture(params=CONFIGS)
def pair(request, tmp_path):
    """Our model, and transformers' reading of the folder that we wrote."""
    ours = tiny_target(CONFIGS[request.param])
    save_target(ours, tmp_path)
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, output_loading_info=True
    )
    assert not report["missing_keys"], report
    assert not report["unexpected_keys"], report
    return ours, theirs.eval()


@torch.no_grad()
def test_logits_and_features(pair):
    ours, theirs = pair
    tokens = ids(ours.config.vocab_size)
    expected = theirs(tokens, output_hidden_states=True)
    taps = (2, 0, 1)
    out = ours(tokens, places(2), RowsMemory(), taps=taps)
    torch.testing.assert_close(ours.logits(out.hidden_BQD), expected.logits, atol=LOGITS, rtol=0)
    features = torch.cat([expected.hidden_states[tap + 1] for tap in taps], dim=-1)
    # rows between layers are not normalised: their last bit is as large as they are
    close = LOGITS * max(1.0, float(features.abs().max()))
    torch.testing.assert_close(out.features_BQF, features, atol=close, rtol=0)


@torch.no_grad()
def test_greedy_ids(pair):
    ours, theirs = pair
    prompts = ids(ours.config.vocab_size, batch=4)[:, :9]
    expected = theirs.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=16,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )[:, 9:]
    assert greedy(ours, prompts, 16) == expected.tolist()
    assert expected.unique().numel() > 4, "texts of one token prove little"


def greedy(model, tokens, count: int) -> list[list[int]]:
    batch, rows = tokens.shape
    kv = model.new_kv(batch=batch, capacity=64)
    start, found = 0, []
    for _ in range(count):
        at = torch.arange(start, start + rows).expand(batch, rows)
        mask = torch.arange(64)[None, None] <= at[..., None]
        hidden = model(tokens, at, CacheMemory(kv, at, mask)).hidden_BQD
        tokens = model.logits(hidden[:, -1:]).argmax(dim=-1)
        start, rows = start + rows, 1
        found.append(tokens)
    return torch.cat(found, dim=1).tolist()


@pytest.mark.parametrize("form", ["qwen3", "llama"])
@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "rope_theta": 1e4},
        {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16},
        {
            "rope_type": "llama3",
            "rope_theta": 1e4,
            "factor": 8.0,
            "original_max_position_embeddings": 32,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
    ],
)
@torch.no_grad()
def test_folders_that_transformers_writes(tmp_path, form, rope):
    torch.manual_seed(0)
    kind = transformers.Qwen3Config if form == "qwen3" else transformers.LlamaConfig
    config = kind(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        rope_parameters=rope,
        initializer_range=0.2,
    )
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval()
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1, "sharded"
    ours = load_target(tmp_path, dtype=torch.float32)
    tokens = ids(61)
    hidden = ours(tokens, places(2), RowsMemory()).hidden_BQD
    torch.testing.assert_close(ours.logits(hidden), theirs(tokens).logits, atol=LOGITS, rtol=0)


@torch.no_grad()
def test_flat_keys_of_older_folders(tmp_path):
    """transformers 4 wrote `rope_theta` and `torch_dtype` at the top; both readers must still agree on them."""
    ours = tiny_target(CONFIGS["llama-llama3"])
    save_target(ours, tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"], config["dtype"]
    path.write_text(json.dumps(config))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    tokens = ids(61)
    hidden = load_target(tmp_path)(tokens, places(2), RowsMemory()).hidden_BQD
    torch.testing.assert_close(ours.logits(hidden), theirs(tokens).logits, atol=LOGITS, rtol=0)
