"""The tokenizer gives back any text, and its special tokens are where the configurations say."""

import json
from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spectiny
from spectiny.corpus import documents
from spectiny.corpus.tokens import (
    SPECIAL_TOKENS,
    VOCABULARY,
    encode,
    load_tokenizer,
    train_tokenizer,
    write_tokenizer,
)

FOLDER = Path(spectiny.__file__).parent / "data" / "qwen3-tiny"
TOKENIZER = load_tokenizer(FOLDER)
CONFIG = json.loads((FOLDER / "tokenizer_config.json").read_text())


def chat(messages, **options):
    """Render the chat template as the public libraries do."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(CONFIG["chat_template"]).render(messages=messages, **options)


@settings(max_examples=40)
@given(st.text(max_size=40))
def test_any_text_comes_back(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


@settings(max_examples=40)
@given(st.text(alphabet=" \n\t0123456789abc()[]:=<|>_", max_size=60))
def test_text_like_code_comes_back(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


def test_special_tokens_have_the_last_ids():
    assert TOKENIZER.get_vocab_size() == VOCABULARY == 2_048
    for place, token in enumerate(SPECIAL_TOKENS):
        number = VOCABULARY - len(SPECIAL_TOKENS) + place
        assert TOKENIZER.token_to_id(token) == number
        assert TOKENIZER.encode(token).ids == [number]
        assert CONFIG["added_tokens_decoder"][str(number)]["content"] == token


def test_digits_stand_alone():
    assert TOKENIZER.encode("12345").tokens == list("12345")


def test_an_indentation_is_one_token():
    assert TOKENIZER.encode("\n        return").tokens[1:] == ["\u0120" * 7, "\u0120return"]


def test_generation_ends_at_the_end_of_a_turn():
    generation = json.loads((FOLDER / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [
        TOKENIZER.token_to_id("<|im_end|>"),
        TOKENIZER.token_to_id("<|endoftext|>"),
    ]


def test_the_chat_template_gives_the_ids_of_training():
    for document in (next(documents(domain, 1, 1)) for domain in ("math", "code", "story")):
        (encoded,) = encode(TOKENIZER, [document])
        turns = [{"role": "user", "content": document.prompt}]
        asked = TOKENIZER.encode(chat(turns, add_generation_prompt=True)).ids
        assert asked == encoded.ids[: encoded.prompt_length]
        turns.append({"role": "assistant", "content": document.response})
        assert TOKENIZER.encode(chat(turns)).ids == encoded.ids


def test_the_chat_template_takes_a_system_turn_and_ignores_thinking():
    turns = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]
    expected = (
        "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    for thinking in (True, False):
        assert chat(turns, add_generation_prompt=True, enable_thinking=thinking) == expected


def test_training_refuses_too_little_text():
    with pytest.raises(ValueError, match="more varied texts"):
        train_tokenizer(["a few words"])


def test_a_trained_tokenizer_can_be_written_and_read(tmp_path):
    texts = [
        one.prompt + "\n" + one.response for domain in ("code", "story") for one in documents(domain, 8, 600)
    ]
    texts += [one.prompt + "\n" + one.response for one in documents("stdlib", 0, 250)]
    trained = train_tokenizer(texts)
    write_tokenizer(trained, tmp_path)
    assert (
        load_tokenizer(tmp_path).encode("def f(x):\n    return x").ids
        == trained.encode("def f(x):\n    return x").ids
    )
    assert json.loads((tmp_path / "tokenizer_config.json").read_text()) == CONFIG
