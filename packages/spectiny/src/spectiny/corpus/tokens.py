"""Texts go in, a byte-level tokenizer of 2,048 entries with its HF files comes out; documents go in, ids come out.

Digits stand alone, runs of spaces before a word keep the last space for the word (so that Python's indentation is one
token), and the special tokens have the last ids. Every byte string can be written, so decoding gives back any text.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from spectiny.document import Document

VOCABULARY = 2_048
"""Number of ids, special tokens included."""

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
"""Special tokens in the order of their ids, which are the last ones."""

_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CHAT_TEMPLATE = (
    "{%- for message in messages %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n"
)


class Encoded(NamedTuple):
    """One document as ids: a chat of one question and its answer, each turn closed by <|im_end|> and a newline."""

    ids: list[int]
    prompt_length: int  # ids before the first one of the response


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Return a tokenizer trained on the texts, with exactly VOCABULARY ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise ValueError(
            f"train_tokenizer: got {tokenizer.get_vocab_size()} ids, expected {VOCABULARY}; pass more varied texts"
        )
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and generation_config.json into a model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = {token: tokenizer.token_to_id(token) for token in SPECIAL_TOKENS}
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "added_tokens_decoder": {
                str(ids[token]): {
                    "content": token,
                    "lstrip": False,
                    "normalized": False,
                    "rstrip": False,
                    "single_word": False,
                    "special": True,
                }
                for token in SPECIAL_TOKENS
            },
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "unk_token": None,
            "add_bos_token": False,
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 1_024,
            "chat_template": _CHAT_TEMPLATE,
        },
    )
    _write_json(
        folder / "generation_config.json",
        {
            "bos_token_id": ids["<|endoftext|>"],
            "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
            "pad_token_id": ids["<|endoftext|>"],
            "do_sample": False,
        },
    )


def load_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a model folder."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def encode(tokenizer: Tokenizer, documents: Sequence[Document]) -> list[Encoded]:
    """Return the documents as ids, in order."""
    prompts = [f"<|im_start|>user\n{one.prompt}<|im_end|>\n<|im_start|>assistant\n" for one in documents]
    responses = [f"{one.response}<|im_end|>\n" for one in documents]
    return [
        Encoded(asked.ids + answered.ids, len(asked.ids))
        for asked, answered in zip(
            tokenizer.encode_batch_fast(prompts), tokenizer.encode_batch_fast(responses), strict=True
        )
    ]


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
