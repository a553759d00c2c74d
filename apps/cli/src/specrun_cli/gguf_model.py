"""A GGUF file of a Llama or Qwen3 in, a Hugging Face folder out: config, weights in a plain dtype, tokenizer.

Quantised weights are spread out as they decode; nothing makes them what they were before. Needs the extra `convert`.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from specmodels.checkpoint.files import SINGLE, write_json, write_tensors
from specrun_cli.gguf_tokenizer import tokenizer_files

# theirs, Hugging Face's
_OUTSIDE: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_FAMILIES: Final = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def convert_gguf(source: Path, folder: Path, dtype: torch.dtype) -> str:
    """Write the folder; says what was written."""
    try:
        import gguf
    except ImportError as error:
        raise ValueError(
            "convert: gguf is not installed, expected the extra convert; pip install 'specrun-cli[convert]'"
        ) from error
    try:
        reader = gguf.GGUFReader(source)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except Exception as error:  # the library checks little: what a damaged file raises may be anything
        raise ValueError(
            f"{source}: not readable as GGUF ({type(error).__name__}: {error}); download it again"
        ) from error
    config = _config(fields, {tensor.name for tensor in reader.tensors}, str(source), dtype)
    files = tokenizer_files(fields)
    write_tensors(folder / SINGLE, dict(_tensors(reader, config, dtype)))
    for name, content in files.items():
        write_json(folder / name, content)
    write_json(folder / "config.json", config)
    kinds = sorted({tensor.tensor_type.name for tensor in reader.tensors})
    return f"{fields.get('general.name', source.stem)}, from {' and '.join(kinds)} to {config['dtype']}"


def _config(fields: dict[str, Any], names: set[str], origin: str, dtype: torch.dtype) -> dict[str, Any]:
    family = fields.get("general.architecture")
    if family not in _FAMILIES:
        raise ValueError(f"{origin}: general.architecture: got {family!r}, expected {' or '.join(_FAMILIES)}")
    scaling = fields.get(f"{family}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in names:
        raise ValueError(
            f"{origin}: got a stretched rotation, expected a plain one; use the original checkpoint"
        )

    def need(name: str) -> Any:
        if f"{family}.{name}" not in fields:
            raise ValueError(f"{origin}: {family}.{name}: missing, expected a value")
        return fields[f"{family}.{name}"]

    heads, hidden = need("attention.head_count"), need("embedding_length")
    named = str(dtype).removeprefix("torch.")
    return {
        "architectures": [_FAMILIES[family]],
        "model_type": family,
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": hidden,
        "intermediate_size": need("feed_forward_length"),
        "num_hidden_layers": need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.get(f"{family}.attention.head_count_kv", heads),
        "head_dim": fields.get(f"{family}.attention.key_length", hidden // heads),
        "hidden_act": "silu",
        "rms_norm_eps": _shortest(need("attention.layer_norm_rms_epsilon")),
        "max_position_embeddings": need("context_length"),
        "rope_theta": _shortest(fields.get(f"{family}.rope.freq_base", 10_000.0)),
        "attention_bias": "blk.0.attn_q.bias" in names,
        "tie_word_embeddings": "output.weight" not in names,
        "bos_token_id": fields.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": fields.get("tokenizer.ggml.eos_token_id"),
        "dtype": named,
        "torch_dtype": named,
    }


def _tensors(reader: Any, config: dict[str, Any], dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    from gguf.quants import dequantize

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for tensor in reader.tensors:
        plain = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if tensor.name in _OUTSIDE:
            yield _OUTSIDE[tensor.name], plain.to(dtype)
            continue
        _, layer, part, kind = [*tensor.name.split("."), *[""] * 4][:4]
        if not tensor.name.startswith("blk.") or part not in _LAYER or kind not in {"weight", "bias"}:
            raise ValueError(f"{tensor.name}: an unknown tensor, expected those of a Llama or Qwen3")
        if config["model_type"] == "llama" and part in heads:
            if plain.shape[0] % (2 * heads[part]):
                raise ValueError(
                    f"{tensor.name}: got {plain.shape[0]} rows, expected pairs for {heads[part]} heads"
                )
            plain = _halves(plain, heads[part])
        yield f"model.layers.{layer}.{_LAYER[part]}.{kind}", plain.to(dtype)


def _halves(rows: Tensor, heads: int) -> Tensor:
    """Rows of a head in the order of Hugging Face's rotation, which turns halves; files of Llamas turn neighbours."""
    paired = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return paired.transpose(1, 2).reshape(rows.shape)


def _shortest(value: float) -> float:
    """The shortest number that single precision cannot tell from the stored one: 1e-5 and not 9.99999974e-06."""
    single = struct.unpack("f", struct.pack("f", value))[0]
    return next(
        short
        for digits in range(1, 10)
        if struct.unpack("f", struct.pack("f", short := float(f"{single:.{digits}g}")))[0] == single
    )
