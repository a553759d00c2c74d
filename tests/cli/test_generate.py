"""Text, figures and JSON of `specrun generate`, on a random model whose text is full of broken characters."""

import io
import re
import sys

import pytest

from specmodels import KnownDrafter
from specrun import Engine, Sampling, load_engine
from specrun_cli import generate as command
from specrun_cli import main as entry
from specrun_cli import opening

PROMPT = "Once upon a time"
KEYS = (
    "text token_ids prompt_tokens tokens rounds tokens_per_round acceptance_by_depth plain_rounds method chosen model"
    " draft device dtype seed temperature finish_reason prefill_seconds decode_seconds tokens_per_second stages"
).split()


@pytest.fixture(scope="module")
def alone(family):
    """The same model through the library, plain decoding."""
    return load_engine(family.target, "ar")


def expected(engine, *, raw=False):
    prompt = PROMPT if raw else engine.chat_ids(PROMPT)
    return engine.generate(prompt, Sampling(max_new_tokens=24))


def test_the_text_is_that_of_the_target_alone(generate, alone):
    outcome = generate(PROMPT)
    assert outcome.code == 0
    assert outcome.out == expected(alone).text + "\n"
    assert outcome.err == ""


def test_without_the_template_the_prompt_stands_as_it_is(generate, alone):
    raw = expected(alone, raw=True).text
    assert generate(PROMPT, "--no-chat-template").out == raw + "\n"
    assert raw != expected(alone).text


def test_pieces_join_to_the_text(generate, monkeypatch, alone):
    pieces = []
    monkeypatch.setattr(command, "print", lambda *text, **how: pieces.append((text, how)), raising=False)
    generate(PROMPT)
    assert len(pieces) > 5
    assert all(how["flush"] for text, how in pieces if text)
    assert "".join("".join(text) for text, _ in pieces) == expected(alone).text


@pytest.mark.parametrize("method", ["ar", "dflash", "ddtree"])
def test_all_methods_give_the_same_ids(generate, alone, method):
    record = generate(PROMPT, "--method", method, "--json", draft=method != "ar").record
    assert record["token_ids"] == expected(alone).token_ids
    assert record["method"] == method


def test_json_has_its_keys_in_their_order(generate, family):
    record = generate(PROMPT, "--json").record
    assert list(record) == KEYS
    assert record["tokens"] == len(record["token_ids"]) == 24
    assert record["finish_reason"] == "length"
    assert (record["model"], record["draft"]) == (str(family.target), str(family.drafter))
    assert (record["device"], record["dtype"], record["seed"], record["temperature"]) == (
        "cpu",
        "float32",
        0,
        0,
    )
    assert record["tokens_per_round"] == pytest.approx(23 / record["rounds"])
    assert list(record["stages"]) == ["draft", "correct", "grow", "verify", "accept", "commit"]
    assert 0 < sum(record["stages"].values()) < record["decode_seconds"]


def test_json_is_all_of_standard_output(generate):
    outcome = generate(PROMPT, "--json", "--stats")
    assert outcome.out.count("\n") == 1
    assert outcome.record["text"]
    assert "tokens per round" in outcome.err


def test_plain_decoding_has_no_drafter(generate):
    record = generate(PROMPT, "--method", "ar", "--json", draft=False).record
    assert record["draft"] is None
    assert record["acceptance_by_depth"] == []
    assert record["tokens_per_round"] == 1


def test_text_in_one_piece_is_the_same_text(generate):
    assert generate(PROMPT, "--no-stream").out == generate(PROMPT).out


def test_stop_texts_end_the_text_and_are_cut_off(generate, alone):
    text = expected(alone).text
    words = re.findall(r"[a-z]{3,}", text)
    stop = words[len(words) // 2]
    outcome = generate(PROMPT, "--stop", "not in there", "--stop", stop)
    assert outcome.out == text[: text.index(stop)] + "\n"
    assert generate(PROMPT, "--stop", stop, "--json").record["finish_reason"] == "stop"


def test_statistics_are_one_block_with_the_definition(generate):
    err = generate(PROMPT, "--stats").err
    assert max(map(len, err.splitlines())) <= 80 or "/" in err  # the folders of a test may be long
    labels = [line[:18].strip() for line in err.splitlines() if line[:1].strip()]
    assert labels == [
        *("method", "device", "tokens", "rounds", "tokens per round", "acceptance", "prefill", "decode"),
        "ms per round",
    ]
    joined = " ".join(err.split())
    assert "kept tokens of the rounds / rounds" in joined
    assert re.search(r"ms per round [\d.]+: draft [\d.]+, correct .*, verify .*, rest [\d.]+$", joined)


def test_no_new_tokens_is_a_request_like_any_other(generate):
    outcome = generate(PROMPT, "--stats", limit=0)
    assert (outcome.code, outcome.out) == (0, "\n")
    assert "no round was needed" in outcome.err


def test_the_seed_decides_what_is_drawn(generate):
    first, again, other = (
        generate(PROMPT, "--temperature", 1, "--seed", seed, "--json").record for seed in (5, 5, 6)
    )
    assert first["token_ids"] == again["token_ids"] != other["token_ids"]
    assert first["seed"] == 5


def test_rejection_runs(generate):
    arguments = ("--temperature", 1, "--accept", "reject", "--draft-temperature", 0.5)
    assert generate(PROMPT, *arguments).code == 0


def test_aliases(generate):
    short = generate(PROMPT, "--max-tokens", 3, "--method", "ddtree", "--budget", 4, "--json").record
    assert short["tokens"] == 3


@pytest.mark.parametrize(
    ("data", "prompt"), [(b"Once", "Once"), (b"Once\n", "Once"), (b"\xef\xbb\xbfOnce\r\n\n", "Once\r\n")]
)
def test_prompts_from_standard_input_and_from_files(generate, monkeypatch, tmp_path, data, prompt):
    plain = generate(prompt, limit=4).out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert generate("-", limit=4).out == plain
    (tmp_path / "prompt").write_bytes(data)
    assert generate("--prompt-file", tmp_path / "prompt", limit=4).out == plain


def test_the_system_turn_reaches_the_template(generate, monkeypatch):
    plain = generate(PROMPT, "--json", limit=1).record["prompt_tokens"]
    assert generate(PROMPT, "--system", "Be brief.", "--json", limit=1).record["prompt_tokens"] > plain


def test_an_embedded_model_says_what_it_is(generate, monkeypatch, family):
    monkeypatch.setattr(opening, "embedded_models", lambda: {str(family.target): None})
    outcome = generate(PROMPT)
    assert outcome.err.count("\n") == 1
    assert re.search(r"demonstration model.*--model qwen3-8b", outcome.err)
    failed = generate(PROMPT, limit=4000)
    assert "demonstration" not in failed.err


def test_an_interrupt_leaves_the_text_as_it_is(generate, monkeypatch, alone):
    text = expected(alone).text
    stream = Engine.stream

    def interrupted(*arguments, **keywords):
        for number, piece in enumerate(stream(*arguments, **keywords)):
            if number == 10:
                raise KeyboardInterrupt
            yield piece

    monkeypatch.setattr(Engine, "stream", interrupted)
    outcome = generate(PROMPT)
    assert outcome.code == entry.INTERRUPTED == 130
    assert outcome.out
    assert text.startswith(outcome.out)
    assert outcome.err == ""


def test_a_note_where_drafts_agree_too_rarely(generate, monkeypatch, tmp_path):
    """Once for a generation, once for a whole file; and never for a drafter of which nothing is known."""
    assert generate("Hello", limit=40).err == ""
    known = KnownDrafter(repo="a/b", revision="main", tokens_per_round=9.0, trained_length=20)
    monkeypatch.setattr(opening, "drafter_known", lambda *a: known)
    err = generate("Hello", limit=40).err
    assert err.count("specrun: note: ") == 2
    assert "tokens per round over" in err
    assert "trained on at most 20" in err
    (tmp_path / "in.jsonl").write_text('{"prompt": "Hello"}\n' * 3)
    err = generate("--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl", limit=40).err
    assert err.count("specrun: note: ") == 2
