"""Tokenizer metadata of a GGUF file in, the JSON files of a Hugging Face tokenizer out.

Byte-level BPE alone; how texts are split before it stands in the file by name only, so the splits are spelt out here.
"""

from collections.abc import Mapping
from typing import Any, Final

_CONTROL, _USER = 3, 4

_LETTERS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_BYTES: Final = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


def _split(pattern: str) -> list[dict[str, Any]]:
    return [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {**_BYTES, "use_regex": False},
    ]


_SPLITS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "gpt-2": [{**_BYTES, "use_regex": True}],
    "smollm": [{"type": "Digits", "individual_digits": True}, {**_BYTES, "use_regex": True}],
    "qwen2": _split(_LETTERS + r"\p{N}" + _REST),
    "llama-bpe": _split(_LETTERS + r"\p{N}{1,3}" + _REST),
}


def tokenizer_files(fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """`tokenizer.json`, `tokenizer_config.json` and `generation_config.json` by name."""
    kind, split = fields.get("tokenizer.ggml.model"), str(fields.get("tokenizer.ggml.pre"))
    if kind != "gpt2" or split not in _SPLITS:
        raise ValueError(
            f"tokenizer: got model {kind!r} and pre {split!r}, expected gpt2 and one of {', '.join(_SPLITS)}"
        )
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    added = [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in {_CONTROL, _USER}
    ]
    roles = {
        role: tokens[fields[f"tokenizer.ggml.{name}_token_id"]]
        for role, name in (
            ("bos_token", "bos"),
            ("eos_token", "eos"),
            ("unk_token", "unknown"),
            ("pad_token", "padding"),
        )
        if f"tokenizer.ggml.{name}_token_id" in fields
    }
    starts = fields.get("tokenizer.ggml.add_bos_token", split == "llama-bpe") and "bos_token" in roles
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": split == "llama-bpe",
        "vocab": {token: number for number, token in enumerate(tokens)},
        "merges": [list(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]],
    }
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if split == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _SPLITS[split]},
        "post_processor": _opening(roles["bos_token"], fields["tokenizer.ggml.bos_token_id"])
        if starts
        else None,
        "decoder": {**_BYTES, "use_regex": True},
        "model": model,
    }
    described: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **roles,
        "added_tokens_decoder": {
            str(entry["id"]): {k: v for k, v in entry.items() if k != "id"} for entry in added
        },
    }
    if "tokenizer.chat_template" in fields:
        described["chat_template"] = fields["tokenizer.chat_template"]
    ends = {"eos_token_id": fields["tokenizer.ggml.eos_token_id"]} if "eos_token" in roles else {}
    return {"tokenizer.json": whole, "tokenizer_config.json": described, "generation_config.json": ends}


def _opening(token: str, number: int) -> dict[str, Any]:
    """A post-processor that puts one token before every text."""
    first, text = {"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [first, text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }
