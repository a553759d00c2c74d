"""GGUF files of tiny models, written with the `gguf` package as converters of the field write them."""

import json
from pathlib import Path

import gguf
import numpy as np

import spectiny

LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
OUTSIDE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
TEXTS = Path(spectiny.__file__).parent / "data" / "qwen3-tiny" / "tokenizer.json"


def neighbours(rows, heads):
    """Rows of every head from halves to neighbours: row j of the first half, then row j of the second."""
    width = rows.shape[0] // heads
    order = [
        head * width + half * (width // 2) + place
        for head in range(heads)
        for place in range(width // 2)
        for half in (0, 1)
    ]
    return rows[order]


def write_gguf(path, config, tensors, *, kind=gguf.GGMLQuantizationType.F32, **fields):
    """A file of the model that `config` and `tensors` (Hugging Face's) describe, with the embedded tokenizer's texts.

    `fields` replace values of the metadata, or leave them out with None.
    """
    family = config["model_type"]
    writer = gguf.GGUFWriter(path, family)
    stored = json.loads(TEXTS.read_text(encoding="utf-8"))
    vocab = dict(stored["model"]["vocab"]) | {
        entry["content"]: entry["id"] for entry in stored["added_tokens"]
    }
    tokens = sorted(vocab, key=vocab.get)
    special = {entry["content"] for entry in stored["added_tokens"]}
    values = {
        "general.name": "tiny",
        f"{family}.block_count": config["num_hidden_layers"],
        f"{family}.context_length": config["max_position_embeddings"],
        f"{family}.embedding_length": config["hidden_size"],
        f"{family}.feed_forward_length": config["intermediate_size"],
        f"{family}.attention.head_count": config["num_attention_heads"],
        f"{family}.attention.head_count_kv": config["num_key_value_heads"],
        f"{family}.attention.key_length": config["head_dim"],
        f"{family}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{family}.rope.freq_base": config["rope_theta"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in special else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in stored["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": vocab["<|endoftext|>"],
        "tokenizer.ggml.eos_token_id": vocab["<|im_end|>"],
        "tokenizer.chat_template": "{{ messages[0].content }}",
    } | fields
    for name, value in values.items():
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif value is not None:
            writer.add_array(name, value)
    for name, tensor in tensors.items():
        rows = tensor.float().numpy()
        if family == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            rows = neighbours(rows, heads)
        wide = rows.ndim == 2 and kind != gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(rows, kind) if wide else rows.astype(np.float32)
        writer.add_tensor(_renamed(name), data, raw_dtype=kind if wide else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _renamed(name):
    if name in OUTSIDE:
        return OUTSIDE[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{LAYER.get(rest, rest)}"
