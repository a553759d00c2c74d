"""Chat templates and special tokens of a model folder: messages in, the prompt's text out.

Templates are programs from strangers, so they run in jinja2's sandbox. It knows no tokenizer.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specmodels.checkpoint.files import read_json

_SPECIAL: Final = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Texts of special tokens by role, and ids of all added tokens by text."""

    roles: Mapping[str, str]  # such as eos_token
    ids: Mapping[str, int]

    def id_of(self, role: str) -> int | None:
        """Id of the token with a role such as `eos_token`; None where the folder names none."""
        text = self.roles.get(role)
        return None if text is None else self.ids.get(text)


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A compiled template with the special tokens that it may write."""

    template: Template
    roles: Mapping[str, str]
    origin: str

    def render(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        enable_thinking: bool,
        add_generation_prompt: bool = True,
    ) -> str:
        """The text of a conversation; templates that know no thinking ignore the flag."""
        try:
            return self.template.render(
                **self.roles,
                messages=list(messages),
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                enable_thinking=enable_thinking,
            )
        except (TemplateError, TypeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(
                f"{self.origin}: chat template refused the messages ({reason}); use --no-chat-template"
            ) from error


def conversation(prompt: str, *, system: str | None = None) -> list[dict[str, str]]:
    """One user turn, after a system prompt if there is one."""
    turns = [] if system is None else [{"role": "system", "content": system}]
    return [*turns, {"role": "user", "content": prompt}]


def read_chat_template(folder: Path) -> ChatTemplate:
    """The template of a folder: `chat_template.jinja`, or the entry of `tokenizer_config.json`."""
    source = _template_source(folder)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _strftime_now
    try:
        template = environment.from_string(source)
    except TemplateError as error:
        raise ValueError(
            f"{folder}: chat template does not parse ({error}); use --no-chat-template"
        ) from error
    return ChatTemplate(template, read_special_tokens(folder).roles, str(folder))


def _template_source(folder: Path) -> str:
    if (folder / "chat_template.jinja").is_file():
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    stored = _tokenizer_config(folder).get("chat_template")
    if isinstance(stored, list):  # several by name
        stored = next((entry.get("template") for entry in stored if entry.get("name") == "default"), None)
    if stored is None:
        raise ValueError(f"{folder}: no chat template, expected one for a chat model; use --no-chat-template")
    return str(stored)


def read_special_tokens(folder: Path) -> SpecialTokens:
    """Roles and ids from `tokenizer_config.json` and `tokenizer.json`."""
    config = _tokenizer_config(folder)
    roles = {}
    for role in _SPECIAL:
        entry = config.get(role)
        text = entry.get("content") if isinstance(entry, dict) else entry
        if isinstance(text, str):
            roles[role] = text
    ids = {entry["content"]: int(number) for number, entry in config.get("added_tokens_decoder", {}).items()}
    if (folder / "tokenizer.json").is_file():
        ids |= {
            entry["content"]: entry["id"]
            for entry in read_json(folder / "tokenizer.json").get("added_tokens", [])
        }
    return SpecialTokens(roles, ids)


def read_stop_ids(folder: Path) -> tuple[int, ...]:
    """Ids that end a text, sorted: those of `generation_config.json`, and the tokenizer's own end of text.

    `config.json` is asked only where the first is silent.
    """
    stops: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file() and not stops:
            stops |= _ids(read_json(folder / name).get("eos_token_id"), f"{folder / name}: eos_token_id")
    end = read_special_tokens(folder).id_of("eos_token")
    return tuple(sorted(stops if end is None else stops | {end}))


def _ids(value: object, what: str) -> set[int]:
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in ids):
        raise ValueError(f"{what}: got {value!r}, expected an id or a list of ids")
    return set(ids)


def _tokenizer_config(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}


def _tojson(value: object, indent: int | None = None) -> str:
    # jinja2's own filter escapes HTML, which would change prompts
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)
