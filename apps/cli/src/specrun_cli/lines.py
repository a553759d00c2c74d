"""Lines of a JSONL file in, prompts and samplings out. Every complaint is of one line, so that the others go on."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from specrun import Engine, Sampling
from specrun_cli.arguments import LARGEST
from specrun_cli.opening import prompt_ids, refuse_without_effect
from specrun_cli.prompt import require_text

_PROMPT: Final = ("prompt", "messages", "system")
_LABELS: Final = ("id", "meta")  # copied to the answer
_ALIASES: Final = {"max_tokens": "max_new_tokens"}
_TYPES: Final = {field.name: type(field.default) for field in fields(Sampling) if field.name != "stop_ids"}
_KNOWN: Final = (*_PROMPT, *_LABELS, *_TYPES, *_ALIASES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One line as it stands in the file."""

    number: int  # from 1
    data: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line, understood."""

    prompt: list[int]
    sampling: Sampling
    labels: dict[str, Any]


def read_sources(path: Path) -> list[Source]:
    """All lines that are not blank."""
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise ValueError(
            f"input: got {str(path)!r} ({error.strerror}), expected a readable file of JSON lines"
        ) from error
    found = [Source(number=number, data=data) for number, data in enumerate(lines, 1) if data.strip()]
    if not found:
        raise ValueError(f"input: {path} holds no line, expected JSON objects with a key prompt or messages")
    return found


def understand(source: Source, engine: Engine, base: Sampling, given: Mapping[str, Any]) -> Line:
    """Ids and sampling of a line; what it does not say is as on the command line.

    Line n draws under the n-th seed from the given one on, unless it names its own: any line can be repeated alone.
    """
    entry = _object(source.data)
    unknown = [key for key in entry if key not in _KNOWN]
    if unknown:
        raise ValueError(
            f"key: got {unknown[0]!r}, expected one of {', '.join(_KNOWN)}; what is to be kept goes under meta"
        )
    own = {_ALIASES.get(key, key): value for key, value in entry.items() if key not in _PROMPT + _LABELS}
    own = {name: _typed(name, value) for name, value in own.items()}
    sampling = replace(base, **own)
    refuse_without_effect(own, sampling)
    if "seed" not in own and sampling.temperature > 0:
        sampling = replace(sampling, seed=(base.seed + source.number - 1 + 2**63) % 2**64 - 2**63)
    prompt = _prompt(entry, engine, given)
    engine.check(prompt, sampling)
    return Line(prompt=prompt, sampling=sampling, labels={key: entry[key] for key in _LABELS if key in entry})


def _object(data: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"text: got bytes that are no UTF-8 (at byte {error.start}), expected UTF-8"
        ) from error
    except json.JSONDecodeError as error:
        raise ValueError(
            f"JSON: {error.msg} at column {error.colno}, expected one object on the line"
        ) from error
    except (ValueError, RecursionError) as error:  # numbers and nestings beyond the interpreter's limits
        raise ValueError(f"JSON: {error}, expected one object on the line") from error
    if isinstance(entry, dict):
        return entry
    raise ValueError(f"JSON: got a {type(entry).__name__}, expected an object with a key prompt or messages")


def _typed(name: str, value: Any) -> Any:
    kind = _TYPES[name]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int and number and isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    if kind is float and number and abs(value) <= LARGEST:
        return float(value)
    if kind is tuple:
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            require_text(name, texts)
            return tuple(texts)
    expected = {
        int: "a whole number of at most 64 bits",
        float: "a number",
        tuple: "a text or a list of texts",
    }
    raise ValueError(f"{name}: got {_shown(value)}, expected {expected[kind]}")


def _prompt(entry: Mapping[str, Any], engine: Engine, given: Mapping[str, Any]) -> list[int]:
    if ("prompt" in entry) == ("messages" in entry):
        raise ValueError("prompt: expected either a key prompt or a key messages")
    if "messages" in entry:
        for name in ("system", "no_chat_template"):
            if name in entry or name in given:
                raise ValueError(
                    f"{name.replace('_', ' ')}: has no effect with messages; leave one of them out"
                )
        return engine.chat_ids(_messages(entry["messages"]), thinking=given.get("thinking", False))
    for name in ("prompt", "system"):
        text = entry.get(name, "x")
        if not isinstance(text, str) or not text:
            raise ValueError(f"{name}: got {_shown(text)}, expected a text of at least one character")
        require_text(name, text)
    if "system" in entry and "no_chat_template" in given:
        raise ValueError("system: has no effect with --no-chat-template; leave one of them out")
    return prompt_ids(
        engine, entry["prompt"], {**given, **{key: entry[key] for key in ("system",) if key in entry}}
    )


def _messages(value: Any) -> list[dict[str, str]]:
    good = isinstance(value, list) and value
    if not good or not all(
        isinstance(turn, dict)
        and turn.keys() == {"role", "content"}
        and all(isinstance(text, str) for text in turn.values())
        for turn in value
    ):
        raise ValueError(
            f"messages: got {_shown(value)}, expected a list of objects with texts role and content"
        )
    for turn in value:
        require_text("messages", [turn["role"], turn["content"]])
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
