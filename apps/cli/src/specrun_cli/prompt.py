"""The prompt from wherever the user put it: the command line, standard input or a file."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_prompt(given: Mapping[str, Any]) -> str:
    """The one prompt that was given; every other number of prompts is an error."""
    for name in ("prompt", "system", "stop"):
        require_text(name, given.get(name, ""))
    if "prompt" in given and "prompt_file" in given:
        raise ValueError("prompt: got a text and --prompt-file, expected one of them")
    if "prompt_file" in given:
        prompt = _decoded(_bytes_of(given["prompt_file"]), given["prompt_file"])
    elif given.get("prompt") == "-":
        prompt = _decoded(sys.stdin.buffer.read(), "standard input")
    elif "prompt" in given:
        prompt = given["prompt"]
    else:
        raise ValueError("prompt: got none, expected a text, - for standard input, or --prompt-file FILE")
    if not prompt:
        raise ValueError("prompt: got an empty text, expected at least one character")
    return prompt


def read_prompts(path: Path) -> list[str]:
    """Prompts from JSON lines with a key `prompt`."""
    prompts = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            prompts.append(str(json.loads(line)["prompt"]))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"prompts: {path} line {number}: expected a JSON object with a key prompt"
            ) from error
    if not prompts:
        raise ValueError(f"prompts: {path} holds none, expected JSON lines with a key prompt")
    return prompts


def _bytes_of(name: str) -> bytes:
    try:
        return Path(name).expanduser().read_bytes()
    except OSError as error:
        raise ValueError(
            f"prompt file: got {name!r} ({error.strerror}), expected a readable UTF-8 file"
        ) from error


def _decoded(data: bytes, origin: str) -> str:
    try:
        # with or without the mark that some editors put first
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"prompt: got bytes in {origin} that are no UTF-8 (at byte {error.start}), expected UTF-8; convert the text"
        ) from error
    return text.removesuffix("\n").removesuffix("\r")


def require_text(name: str, value: str | list[str]) -> None:
    """Bytes of the command line that are no UTF-8 arrive as lone surrogates, which no tokenizer takes."""
    try:
        "".join(value).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: got bytes that are no UTF-8, expected UTF-8; convert the text") from error
