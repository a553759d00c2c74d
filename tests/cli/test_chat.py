"""`specrun chat`: every turn is that of a fresh process, commands do what they say, and Ctrl-C stops an answer alone."""

import io
import itertools
import json
import re
import signal
import subprocess
import sys

import pytest

from specmodels import KnownDrafter
from specrun import Engine, Sampling, assemble, load_engine

LIMIT = 12


@pytest.fixture
def chat(specrun, family, monkeypatch):
    """Say some lines; what comes back has the answers in `out`, one per line as these texts have no break."""

    def say(*lines, flags=(), draft=True):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        drafter = ("--draft", family.drafter) if draft else ()
        return specrun("chat", "--model", family.target, *drafter, "--max-new-tokens", LIMIT, *flags)

    return say


def lines(*texts):
    return "".join(f"{text}\n" for text in texts)


def fresh(family, turns, **settings):
    """Texts of a conversation, each by an engine of its own; `turns` are messages of the user."""
    said, texts = [], []
    for message in turns:
        engine = load_engine(family.target, "ar")
        said.append({"role": "user", "content": message})
        texts.append(engine.generate(engine.chat_ids(said), Sampling(max_new_tokens=LIMIT, **settings)).text)
        said.append({"role": "assistant", "content": texts[-1]})
    return texts


@pytest.mark.parametrize("method", ["dflash", "ddtree"])
def test_every_turn_is_that_of_a_fresh_engine(chat, family, method):
    turns = ["Hello", "And then?", "//Why"]
    expected = fresh(family, ["Hello", "And then?", "/Why"], temperature=0.8, seed=4)
    flags = ("--temperature", "0.8", "--seed", "4", "--method", method, "--stats")
    outcome = chat(*turns, flags=flags)
    assert (outcome.code, outcome.out) == (0, lines(*expected))
    counts = [
        (int(prompt), int(known or 0))
        for prompt, known in re.findall(r"after a prompt of (\d+)(?: \((\d+) known)?", outcome.err)
    ]
    assert counts[0][1] == 0
    for (before, _), (_, known) in itertools.pairwise(counts):
        assert known >= before - 1, "the prompt before was read again"


def test_commands(chat, family, tmp_path):
    saved = tmp_path / "saved.jsonl"
    outcome = chat(
        *(
            "/system Be kind.",
            "Hello",
            "/seed 5",
            "Hello",
            "/reset",
            "/system",
            "Hello",
            "/stats",
            f"/save {saved}",
        ),
        *("/help", "/quit", "never read"),
        flags=("--temperature", "0.8"),
    )
    first = fresh_with_system(family, "Be kind.", ["Hello", "Hello"], [0, 5])
    last = fresh(family, ["Hello"], temperature=0.8, seed=5)
    assert (outcome.code, outcome.out) == (0, lines(*first, *last))
    total = re.search(r"all answers +(\d+) tokens", outcome.err)
    assert 0 < int(total.group(1)) <= 3 * LIMIT
    assert all(
        name in outcome.err for name in ("/system", "/seed", "/method", "/stats", "/save", "/reset", "/quit")
    )
    entry = json.loads(saved.read_text())
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": last[0]}]
    meta = {"model": str(family.target), "method": "dflash"}
    assert entry == {
        "messages": turns,
        "max_new_tokens": LIMIT,
        "temperature": 0.8,
        "seed": 5,
        "meta": meta,
    }


def fresh_with_system(family, system, turns, seeds):
    said, texts = [{"role": "system", "content": system}], []
    for message, seed in zip(turns, seeds, strict=True):
        engine = load_engine(family.target, "ar")
        said.append({"role": "user", "content": message})
        sampling = Sampling(max_new_tokens=LIMIT, temperature=0.8, seed=seed)
        texts.append(engine.generate(engine.chat_ids(said), sampling).text)
        said.append({"role": "assistant", "content": texts[-1]})
    return texts


def test_another_method_keeps_the_conversation(chat, family, monkeypatch):
    """And the model: only the drafter is loaded."""
    loaded, inner = [], assemble.load_target
    monkeypatch.setattr("specrun.assemble.load_target", lambda *a, **k: loaded.append(a) or inner(*a, **k))
    outcome = chat("Hello", "/method ar", "And then?", draft=False, flags=("--method", "ar"))
    assert outcome.out == lines(*fresh(family, ["Hello", "And then?"]))
    assert len(loaded) == 1 + 2, "one for the chat, one for each expected answer"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/jump", "command: got /jump, expected one of /system, /seed"),
        ("/seed", "seed: got '', expected a whole number"),
        ("/seed x", "seed: got 'x', expected a whole number"),
        ("/seed 3", "seed: has no effect at temperature 0"),
        ("/method ddtree", "method: the drafter was named with --draft"),
        ("/stats", "stats: there is no whole answer yet"),
        ("/save", "save: got no file, expected /save FILE"),
        ("/save absent/file", "save: got 'absent/file' .No such file or directory., expected"),
        ("/save .", "save: . exists already, expected a new file"),
        ("\udcff", "message: got bytes that are no UTF-8"),
        ("x " * 300, "conversation: got \\d+ tokens, expected fewer than 256, .*; /reset begins anew"),
    ],
)
def test_what_goes_wrong_is_one_line_and_the_chat_goes_on(chat, family, line, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = chat(line, "Hello")
    assert re.fullmatch(f"specrun: {message}.*\n", outcome.err), outcome.err
    assert (outcome.code, outcome.out) == (0, lines(*fresh(family, ["Hello"])))
    assert not list(tmp_path.iterdir())


def test_a_method_that_cannot_be_leaves_the_old_one(chat, family):
    outcome = chat("/method magic", "/method ddtree", "Hello", draft=False, flags=("--method", "ar"))
    assert "method: got 'magic', expected one of ar" in outcome.err
    assert "draft: none is known for" in outcome.err
    assert outcome.out == lines(*fresh(family, ["Hello"]))


def test_a_note_is_made_once(chat, monkeypatch):
    known = KnownDrafter(repo="a/b", revision="main", trained_length=20)
    monkeypatch.setattr("specrun_cli.opening.drafter_known", lambda *a: known)
    assert chat("Hello", "And then?", "And then?").err.count("specrun: note: ") == 1


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_an_interrupt_keeps_what_was_shown(chat, family, monkeypatch, rounds):
    inner, calls = Engine.stream, iter(range(99))

    def interrupted(engine, *arguments, **named):
        stopped = next(calls) == 0
        for count, piece in enumerate(inner(engine, *arguments, **named)):
            if stopped and count == rounds:
                raise KeyboardInterrupt
            yield piece

    monkeypatch.setattr(Engine, "stream", interrupted)
    outcome = chat("Hello", "And then?")
    assert outcome.code == 0
    assert outcome.err == "\nspecrun: stopped\n"
    monkeypatch.setattr(Engine, "stream", inner)
    engine = load_engine(family.target, "dflash", draft=family.drafter)
    said = [{"role": "user", "content": "Hello"}]
    sampling = Sampling(max_new_tokens=LIMIT)
    pieces = itertools.islice(engine.stream(engine.chat_ids(said), sampling), rounds)
    shown = "".join(piece.text for piece in pieces)
    assert bool(shown) == bool(rounds)
    said = [*said, {"role": "assistant", "content": shown}] if shown else []
    said.append({"role": "user", "content": "And then?"})
    assert outcome.out == shown + engine.generate(engine.chat_ids(said), sampling).text + "\n"


SLOWLY = """
import signal, sys, time
from specrun import Engine
from specrun_cli.main import main

def slow(*arguments, inner=Engine.stream, **named):
    for piece in inner(*arguments, **named):
        yield piece
        time.sleep(0.01)

Engine.stream = slow
# a shell starts what runs in its background deaf to this signal
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""


def test_ctrl_c_stops_the_answer_and_not_the_program(family):
    # the tiny model's answer would be complete before the signal comes
    command = (sys.executable, "-c", SLOWLY, "chat", "--model", family.target, "--method", "ar")
    with subprocess.Popen(
        [*command, "--max-new-tokens", "120"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdin.write("Hello\n")
        process.stdin.flush()
        assert process.stdout.read(1)  # the answer has begun
        process.send_signal(signal.SIGINT)
        out, err = process.communicate("And then?\n", timeout=100)
    assert process.returncode == 0
    assert err == "\nspecrun: stopped\n"
    assert len(out.splitlines()[-1]) > 40, "the second answer is whole"
