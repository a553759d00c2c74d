"""Answers in whatever order they are finished in, one file in the order of the lines out; a kill in between loses none.

Beside the output grows `<output>.part`: a line of settings, then a line per answer. The output itself appears whole.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class Journal:
    """The answers so far; those of an earlier run under the same settings are there from the start."""

    def __init__(self, output: Path, settings: Mapping[str, Any]) -> None:
        self.output, self.part = output, output.with_name(f"{output.name}.part")
        if output.exists():
            raise ValueError(
                f"output: {output} exists already, expected a new file; name another or delete it"
            )
        if not output.parent.is_dir():
            raise ValueError(f"output: no folder {output.parent}, expected one that exists")
        self._settings = json.loads(json.dumps(settings))  # as they come back from a file
        self._answers: dict[int, tuple[str, dict[str, Any]]] = {}  # by line: digest of the line, answer
        if self.part.is_file():
            self._read()

    def answers(self, number: int, digest: str) -> bool:
        """Whether the line has its answer; an answer to another text of the line is forgotten."""
        held = self._answers.get(number)
        if held is not None and held[0] != digest:
            del self._answers[number]
        return number in self._answers

    def add(self, number: int, digest: str, answer: dict[str, Any]) -> None:
        """Keep an answer, on disk before anything else happens."""
        self._answers[number] = (digest, answer)
        text = json.dumps({"line": number, "digest": digest, "answer": answer})
        if not self.part.is_file():
            text = json.dumps({"settings": self._settings}) + "\n" + text
        with self.part.open("a", encoding="utf-8") as stream:
            stream.write(f"{text}\n")

    def finish(self, numbers: Iterable[int]) -> None:
        """Write the answers to these lines in order, and take the journal away."""
        whole = self.output.with_name(f"{self.output.name}.whole")
        with whole.open("w", encoding="utf-8") as stream:
            for number in sorted(self._answers.keys() & set(numbers)):
                stream.write(json.dumps({"line": number, **self._answers[number][1]}) + "\n")
        whole.replace(self.output)
        self.part.unlink(missing_ok=True)

    def _read(self) -> None:
        data = self.part.read_bytes()
        # a kill may have cut the last line
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            self.part.unlink()
            return
        try:
            header, *entries = (json.loads(line) for line in whole.splitlines())
            settings = header["settings"]
            self._answers = {entry["line"]: (entry["digest"], entry["answer"]) for entry in entries}
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"output: {self.part} is no journal of answers; delete it") from error
        if settings != self._settings:
            raise ValueError(
                f"output: {self.part} was begun with other options: {_first_difference(settings, self._settings)};"
                " give the same, or delete it"
            )
        if whole != data:
            with self.part.open("r+b") as stream:
                stream.truncate(len(whole))


def _first_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    name = next(name for name in sorted({*before, *now}) if before.get(name) != now.get(name))
    return (
        f"{name.replace('_', '-')} was {before.get(name, 'not given')}, and is {now.get(name, 'not given')}"
    )
