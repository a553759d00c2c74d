"""`specrun generate --input`: every line is what it is alone, in order, whatever kills the run in between."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from specrun import Engine
from specrun_cli.journal import Journal
from specrun_cli.lines import Source, understand
from specrun_cli.opening import open_engine, read_sampling

LIMIT = 16
PROMPTS = [f"Count to {number}" for number in range(7)]
SAMPLED = ("--temperature", "0.9", "--seed", "5")


def write(path, entries):
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def run(generate, tmp_path):
    """Answers to a file of prompts, three at a time."""
    source, output = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"

    def call(entries, *arguments, code=0, limit=LIMIT):
        write(source, entries)
        done = generate("--input", source, "--output", output, "--batch-size", 3, *arguments, limit=limit)
        assert (done.code, done.out) == (code, ""), done.err
        return done.err

    call.source, call.output, call.part = source, output, tmp_path / "answers.jsonl.part"
    return call


@pytest.mark.parametrize("method", ["dflash", "ddtree"])
def test_every_line_is_what_it_is_alone(run, generate, method):
    limits = [LIMIT, 1, 30, 0, 2, 9, LIMIT]
    entries = [{"prompt": text, "max_new_tokens": limit} for text, limit in zip(PROMPTS, limits, strict=True)]
    err = run(entries, *SAMPLED, "--method", method)
    answers = read(run.output)
    assert [answer["line"] for answer in answers] == [1, 2, 3, 4, 5, 6, 7]
    for number, (text, limit, answer) in enumerate(zip(PROMPTS, limits, answers, strict=True)):
        alone = generate(
            *(text, "--json", "--method", method, "--temperature", "0.9", "--seed", 5 + number), limit=limit
        ).record
        for key in ("text", "token_ids", "finish_reason", "prompt_tokens", "tokens", "rounds"):
            assert answer[key] == alone[key], key
    assert f"7 answers, {sum(answer['tokens'] for answer in answers)} tokens in" in err
    assert "tokens/s" in err
    assert not run.part.exists()


def test_a_line_may_have_settings_messages_and_labels_of_its_own(run, generate):
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    first, second, third = (
        {"messages": conversation, "id": 7, "meta": {"from": "here"}},
        {
            "prompt": "Why?",
            "system": "Be brief.",
            "temperature": 0.7,
            "top_p": 0.8,
            "seed": 3,
            "max_tokens": 9,
        },
        {"prompt": "Say it", "stop": "e"},
    )
    run([first, second, third])
    answers = read(run.output)
    assert (answers[0]["id"], answers[0]["meta"]) == (7, {"from": "here"})
    alone = [
        generate("Why?", "--system", "Be brief.", "--json", limit=LIMIT).record,
        generate(
            *("Why?", "--system", "Be brief.", "--json", "--temperature", 0.7, "--top-p", 0.8, "--seed", 3),
            limit=9,
        ).record,
        generate("Say it", "--stop", "e", "--json", limit=LIMIT).record,
    ]
    assert [answer["token_ids"] for answer in answers] == [answer["token_ids"] for answer in alone]


def test_bad_lines_are_named_and_the_others_go_on(run):
    entries = [{"prompt": "a"}, {"prompt": 1}, {"prompt": "b"}, {"promt": "c"}, {"prompt": "d", "top_k": -1}]
    err = run(entries, code=2)
    assert [answer["line"] for answer in read(run.output)] == [1, 3]
    complaints = [line for line in err.splitlines() if line.endswith("; skipped")]
    assert [line.split(": ")[1].rpartition(" ")[2] for line in complaints] == ["2", "4", "5"]
    assert err.splitlines()[-1].startswith(
        "specrun: input: 3 of 5 lines were skipped (2, 4, 5); the others are in"
    )


def test_a_file_without_a_good_line_leaves_nothing(run):
    assert "none of the 1 lines" in run([{"prompt": ""}], code=2)
    assert not run.output.exists()
    assert not run.part.exists()


@pytest.fixture
def whole(run):
    """The output of a run that nothing stopped, and the journal as it was before the end."""
    entries = [{"prompt": text} for text in PROMPTS]
    parts = []
    finish = Journal.finish

    def watched(journal, numbers):
        parts.append(run.part.read_bytes())
        finish(journal, numbers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "finish", watched)
        run(entries, *SAMPLED)
    expected = run.output.read_bytes()
    run.output.unlink()
    return entries, expected, parts[0]


def test_a_run_goes_on_from_every_state_that_a_kill_can_leave(run, whole, monkeypatch):
    """Cut at ends of the header and of answers, a byte before and behind them, and somewhere inside; then once more."""
    entries, expected, journal = whole
    decoded, stop = [], []
    inner = Engine.stream_batch

    def counted(engine, prompts, *arguments, **named):
        decoded.append(len(prompts))
        for piece in inner(engine, prompts, *arguments, **named):
            yield piece
            if stop and piece.generation is not None:
                raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "stream_batch", counted)
    ends = [place + 1 for place, byte in enumerate(journal) if byte == ord("\n")]
    assert len(ends) == 1 + len(entries)
    places = (ends[0], ends[3], ends[-2])
    for cut in {0, len(journal) // 2, *places, *(end - 1 for end in places), *(end + 1 for end in places)}:
        run.part.write_bytes(journal[:cut])
        there = max(0, sum(end <= cut for end in ends) - 1)
        stop.append(True)
        run(entries, *SAMPLED, code=130)
        stop.clear()
        run(entries, *SAMPLED)
        assert run.output.read_bytes() == expected
        # the answer that came before the interrupt was kept
        assert [decoded.pop(), decoded.pop()] == [len(entries) - there - 1, len(entries) - there]
        run.output.unlink()


def test_a_line_that_was_changed_is_decoded_again(run, whole):
    entries, expected, journal = whole
    run.part.write_bytes(journal)
    changed = [*entries[:2], {"prompt": "Another one"}, *entries[3:]]
    run(changed, *SAMPLED)
    before, now = expected.splitlines(), run.output.read_bytes().splitlines()
    assert [index for index in range(len(entries)) if before[index] != now[index]] == [2]


def test_a_line_that_was_taken_away_has_no_answer(run, whole):
    entries, expected, journal = whole
    run.part.write_bytes(journal)
    run(entries[:4], *SAMPLED)
    assert run.output.read_bytes().splitlines() == expected.splitlines()[:4]


def test_other_options_do_not_mix(run, whole):
    entries, _, journal = whole
    run.part.write_bytes(journal)
    err = run(entries, "--temperature", "0.9", "--seed", "6", code=2)
    assert "seed was 5, and is 6; give the same, or delete it" in err
    assert run.part.read_bytes() == journal


@pytest.mark.parametrize("data", [b"not json\n", b"[]\n", b'{"settings": {}}\n{}\n', b"\xff\n"])
def test_a_journal_that_is_none(run, data):
    run.part.write_bytes(data)
    assert "is no journal of answers; delete it" in run([{"prompt": "a"}], code=2)
    assert run.part.read_bytes() == data


def test_an_interrupt_says_how_to_go_on(run, monkeypatch):
    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "stream_batch", interrupted)
    assert "stopped; the same command goes on from here" in run([{"prompt": "a"}], code=130)
    assert not run.output.exists()


def test_a_killed_process_goes_on(family, run):
    entries = [{"prompt": text, "max_new_tokens": 3 + 20 * place} for place, text in enumerate(PROMPTS)]
    run(entries)
    expected = run.output.read_bytes()
    run.output.unlink()
    command = ["generate", "--model", family.target, "--draft", family.drafter]
    command += ["--method", "dflash", "--batch-size", "3"]
    command += ["--max-new-tokens", str(LIMIT), "--input", run.source, "--output", run.output]
    with subprocess.Popen(
        [sys.executable, "-m", "specrun_cli", *command], stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and not run.part.exists():
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
    assert not run.output.exists(), "it was done before it could be killed"
    run(entries)
    assert run.output.read_bytes() == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a prompt",), "prompt: has no effect with --input"),
        (("--json",), "json: has no effect with --input"),
        (("--stats",), "stats: has no effect with --input"),
        (("--no-stream",), "no-stream: has no effect with --input"),
        (("--batch-size", "0"), "batch size: got 0, expected at least 1"),
        (("--batch-size", "two"), "--batch-size: got 'two', expected a whole number"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_options_that_do_not_go_together(run, arguments, message):
    assert run([{"prompt": "a"}], *arguments, code=2).startswith(f"specrun: {message}")
    assert not run.output.exists()


def test_files_that_are_not_there(generate, tmp_path):
    source = write(tmp_path / "in.jsonl", [{"prompt": "a"}])
    (tmp_path / "empty").write_text("\n \n")
    (tmp_path / "taken").write_text("kept")
    for arguments, message in [
        (("--input", source), "output: got none, expected a file"),
        (("--output", "x", "a"), "output: has no effect without --input"),
        (("--batch-size", 2, "a"), "batch-size: has no effect without --input"),
        (("--input", tmp_path / "absent", "--output", tmp_path / "x"), "input: got .*No such file"),
        (("--input", tmp_path / "empty", "--output", tmp_path / "x"), "input: .* holds no line"),
        (("--input", source, "--output", tmp_path / "taken"), "output: .* exists already"),
        (("--input", source, "--output", tmp_path / "a" / "b"), "output: no folder"),
    ]:
        outcome = generate(*arguments)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.count("\n") == 1
        assert re.match(f"specrun: {message}", outcome.err), outcome.err
    assert (tmp_path / "taken").read_text() == "kept"
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "empty", "taken"}


BAD = {
    b"": "JSON: Expecting value at column 1",
    b"{": "JSON: Expecting property name",
    b'{"prompt": "a"} {}': "JSON: Extra data at column 17",
    b'{"prompt": "a",}': "JSON: ",
    b"[1]": "JSON: got a list, expected an object",
    b'"text"': "JSON: got a str, expected an object",
    b"null": "JSON: got a NoneType, expected an object",
    b"\xff": "text: got bytes that are no UTF-8",
    b"[" * 100_000: "JSON: ",
    b'{"prompt": ' + b"1" * 5000 + b"}": "JSON: ",
    b"{}": "prompt: expected either a key prompt or a key messages",
    b'{"prompt": "a", "messages": []}': "prompt: expected either a key prompt or a key messages",
    b'{"prompt": ""}': 'prompt: got "", expected a text',
    b'{"prompt": null}': "prompt: got null, expected a text",
    b'{"prompt": ["a"]}': 'prompt: got .*"a".*, expected a text',
    b'{"prompt": "\\ud800"}': "prompt: got bytes that are no UTF-8",
    b'{"prompt": "a", "system": 1}': "system: got 1, expected a text",
    b'{"prompt": "a", "temperture": 1}': "key: got 'temperture', expected one of prompt, messages, system, id, meta",
    b'{"prompt": "a", "temperature": "1"}': 'temperature: got "1", expected a number',
    b'{"prompt": "a", "temperature": true}': "temperature: got true, expected a number",
    b'{"prompt": "a", "temperature": -1}': "temperature: got -1.0, expected a number from 0",
    b'{"prompt": "a", "temperature": NaN}': "temperature: got NaN, expected a number",
    b'{"prompt": "a", "temperature": 1e999}': "temperature: got Infinity, expected a number",
    b'{"prompt": "a", "top_p": 0}': "top-p: got 0.0, expected a number above 0",
    b'{"prompt": "a", "top_k": 1.5}': "top_k: got 1.5, expected a whole number",
    b'{"prompt": "a", "top_k": 99999999999999999999}': "top_k: got 9+, expected a whole number of at most 64 bits",
    b'{"prompt": "a", "max_new_tokens": -1}': "max new tokens: got -1, expected at least 0",
    b'{"prompt": "a", "max_tokens": 1000}': "prompt: got .* tokens and 1000 new ones, expected at most 256",
    b'{"prompt": "a", "seed": 1}': "seed: got 1 at temperature 0, where it has no effect",
    b'{"prompt": "a", "stop": 1}': "stop: got 1, expected a text or a list of texts",
    b'{"prompt": "a", "stop": ["a", 1]}': "stop: got .*, expected a text or a list of texts",
    b'{"prompt": "a", "stop": [""]}': "stop: .*expected texts of at least one character",
    b'{"prompt": "a", "stop_ids": [1]}': "key: got 'stop_ids', expected one of",
    b'{"messages": []}': r"messages: got \[\], expected a list of objects with texts role and content",
    b'{"messages": "a"}': 'messages: got "a", expected a list',
    b'{"messages": [{"role": "user"}]}': "messages: got .*, expected a list of objects",
    b'{"messages": [{"role": "user", "content": 1}]}': "messages: got .*, expected a list of objects",
    b'{"messages": [{"role": "user", "content": "\\udfff"}]}': "messages: got bytes that are no UTF-8",
    b'{"messages": [{"role": "user", "content": "a"}], "system": "b"}': "system: has no effect with messages",
}


@pytest.fixture(scope="module")
def opened(family):
    given = {"model": str(family.target), "draft": str(family.drafter), "max_new_tokens": LIMIT}
    base = read_sampling(given)
    return open_engine(given, base), base, given


@pytest.mark.parametrize("data", BAD, ids=lambda data: data[:50].decode(errors="replace"))
def test_bad_lines(opened, data):
    with pytest.raises(ValueError, match=f"^{BAD[data]}") as caught:
        understand(Source(number=3, data=data), *opened)
    assert "\n" not in str(caught.value)
