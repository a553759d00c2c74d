"""`specrun chat`: a conversation in the terminal. Lines in, answers out as they are accepted.

What a turn shares with the one before it is not read again. Ctrl-C stops an answer and not the program.
"""

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from specrun import Engine, Generation, Sampling, Stats
from specrun.clock import StageClock
from specrun_cli.columns import paragraph
from specrun_cli.opening import MODEL, advise, announce, enough_memory, open_engine, prompt_ids, read_sampling
from specrun_cli.prompt import require_text
from specrun_cli.report import as_block

_INDENT = 18


def run(given: Mapping[str, Any]) -> None:
    """Talk until the input ends."""
    with enough_memory():
        chat = Chat(given)
    announce(given.get("model", MODEL))
    with suppress(ImportError):  # gives `input` its history and line editing, where the platform has it
        import readline  # noqa: F401
    terminal = sys.stdin.isatty()
    if terminal:
        print("specrun: /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves", file=sys.stderr)
    while not chat.left:
        try:
            line = input("> " if terminal else "")
        except EOFError:
            break
        except KeyboardInterrupt:
            print("\nspecrun: Ctrl-D or /quit leaves", file=sys.stderr)
            continue
        except UnicodeDecodeError as error:
            raise ValueError(
                "message: got bytes that are no UTF-8, expected UTF-8; convert the text"
            ) from error
        try:
            with enough_memory():
                chat.take(line)
        except KeyboardInterrupt:
            print("\nspecrun: stopped", file=sys.stderr)
        except ValueError as error:
            print(f"specrun: {' '.join(str(error).split())}", file=sys.stderr)
    if terminal:
        print()


class Chat:
    """A conversation, and the engine that holds it."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        require_text("system", given.get("system", ""))
        self.given = dict(given)
        self.sampling: Sampling = read_sampling(given)
        self.engine: Engine = open_engine(given, self.sampling)
        # a model without a template, or without thinking, is refused before the first line
        prompt_ids(self.engine, "a", given)
        self.turns: list[dict[str, str]] = []
        self.latest: Generation | None = None
        self.total = Stats()
        self.left = False
        self._said: set[str] = set()  # advice that was given
        self._commands: dict[str, tuple[str, Callable[[str], None]]] = {
            "/system": ("TEXT  set the system turn; without a text, take it away", self._system),
            "/seed": ("N  another seed, above temperature 0", self._seed),
            "/method": ("NAME  another method, the conversation is kept", self._method),
            "/stats": ("counts and times of the last answer, and of all", self._stats),
            "/save": (
                "FILE  write the conversation as a line that `specrun generate --input` takes",
                self._save,
            ),
            "/reset": ("forget the conversation, not the system turn", self._reset),
            "/help": ("this list; a message that begins with / is written //", self._help),
            "/quit": ("leave, as Ctrl-D does", self._quit),
        }

    def take(self, line: str) -> None:
        """A command, or a message to answer."""
        require_text("message", line)
        name, _, rest = line.strip().partition(" ")
        if name.startswith("/") and not name.startswith("//"):
            if name not in self._commands:
                raise ValueError(
                    f"command: got {name}, expected one of {', '.join(self._commands)};"
                    " a message that begins with / is written //"
                )
            self._commands[name][1](rest.strip())
        elif line.strip():
            self._answer(line.removeprefix("/") if name.startswith("//") else line)

    def messages(self) -> list[dict[str, str]]:
        """All turns, the system's first if there is one."""
        system = self.given.get("system")
        return [*([] if system is None else [{"role": "system", "content": system}]), *self.turns]

    def _answer(self, message: str) -> None:
        asked = {"role": "user", "content": message}
        ids = self.engine.chat_ids([*self.messages(), asked], thinking=self.given.get("thinking", False))
        room = self.engine.context - len(ids)
        if room < 1:
            raise ValueError(
                f"conversation: got {len(ids)} tokens, expected fewer than {self.engine.context}, which is all that the"
                " model takes; /reset begins anew"
            )
        sampling = replace(self.sampling, max_new_tokens=min(self.sampling.max_new_tokens, room))
        clock = StageClock(self.engine.parts.target.embedding.device)
        text = ""
        try:
            for piece in self.engine.stream(ids, sampling, reuse=True, clock=clock):
                text += piece.text
                print(piece.text, end="", flush=True)
                self.latest = piece.generation or self.latest
        finally:
            if text:  # what was shown was said, even if it was stopped
                self.turns += [asked, {"role": "assistant", "content": text}]
        print()
        assert self.latest is not None, "the stream ended without a last piece"
        self.latest.stats.stage_seconds.update(clock.seconds())
        self.total.add(self.latest.stats)
        length = len(ids) + self.latest.stats.tokens
        advise(self.given, self.engine, self.latest.stats, length=length, known=self._said)
        if "stats" in self.given:
            self._stats("")

    def _system(self, text: str) -> None:
        if text:
            self.given["system"] = text
        else:
            self.given.pop("system", None)

    def _seed(self, text: str) -> None:
        if not text.lstrip("-").isdecimal():
            raise ValueError(f"seed: got {text!r}, expected a whole number")
        if self.sampling.temperature == 0:
            raise ValueError("seed: has no effect at temperature 0; start with --temperature above 0")
        self.sampling = replace(self.sampling, seed=int(text))

    def _method(self, name: str) -> None:
        if "draft" in self.given:
            raise ValueError("method: the drafter was named with --draft; start anew for another method")
        self.engine = open_engine({**self.given, "method": name}, self.sampling, beside=self.engine)
        self.given["method"], self.latest = name, None

    def _stats(self, _: str) -> None:
        if self.latest is None:
            raise ValueError("stats: there is no whole answer yet")
        draft = self.given.get("draft")
        print(
            as_block(self.latest, self.engine, model=self.given.get("model", MODEL), draft=draft),
            file=sys.stderr,
        )
        total = self.total
        text = f"{total.tokens} tokens, {total.tokens_per_round:.2f} per round, {total.tokens_per_second:.1f} tokens/s"
        print(paragraph("all answers", text, indent=_INDENT), file=sys.stderr)

    def _save(self, name: str) -> None:
        if not name:
            raise ValueError("save: got no file, expected /save FILE")
        path = Path(name).expanduser()
        if path.exists():
            raise ValueError(f"save: {path} exists already, expected a new file")
        usual = asdict(Sampling())
        own = {key: value for key, value in asdict(self.sampling).items() if value != usual[key]}
        meta = {"model": self.given.get("model", MODEL), "method": self.engine.method.name}
        line = json.dumps({"messages": self.messages(), **own, "meta": meta})
        try:
            path.write_text(f"{line}\n", encoding="utf-8")
        except OSError as error:
            raise ValueError(
                f"save: got {name!r} ({error.strerror}), expected a file that can be written"
            ) from error

    def _reset(self, _: str) -> None:
        self.turns.clear()

    def _help(self, _: str) -> None:
        for name, (text, _command) in self._commands.items():
            print(paragraph(name, text, indent=10), file=sys.stderr)

    def _quit(self, _: str) -> None:
        self.left = True
