"""Chat templates and special tokens of a model folder: messages in, the prompt's text out.

It knows no tokenizer, and leaves the running of templates to `sandbox`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import TemplateError

from specmodels.checkpoint.files import read_json, read_text
from specmodels.sandbox import Render, compiled

MOST_REASON: Final = 200
"""Characters of a template's own complaint that are passed on."""

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

    template: Render
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
            return self.template(
                {
                    **self.roles,
                    "messages": list(messages),
                    "tools": None,
                    "documents": None,
                    "add_generation_prompt": add_generation_prompt,
                    "enable_thinking": enable_thinking,
                }
            )
        except TemplateError as error:
            reason = " ".join(str(error).split())[:MOST_REASON]
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
    try:
        template = compiled(source)
    except TemplateError as error:
        reason = " ".join(str(error).split())[:MOST_REASON]
        raise ValueError(
            f"{folder}: chat template does not parse ({reason}); use --no-chat-template"
        ) from error
    return ChatTemplate(template, read_special_tokens(folder).roles, str(folder))


def _template_source(folder: Path) -> str:
    if (folder / "chat_template.jinja").is_file():
        return read_text(folder / "chat_template.jinja")
    stored = _tokenizer_config(folder).get("chat_template")
    if isinstance(stored, list):  # several by name
        named = map(_mapping, stored)
        stored = next((entry.get("template") for entry in named if entry.get("name") == "default"), None)
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
    listed: list[tuple[object, object]] = list(_mapping(config.get("added_tokens_decoder")).items())
    if (folder / "tokenizer.json").is_file():
        stored = read_json(folder / "tokenizer.json").get("added_tokens")
        listed += [
            (_mapping(entry).get("id"), entry) for entry in (stored if isinstance(stored, list) else [])
        ]
    ids = {}
    for number, entry in listed:
        text = _mapping(entry).get("content")
        if not isinstance(text, str) or not str(number).isdecimal():
            raise ValueError(
                f"{folder}: added tokens: got {number!r}: {entry!r}, expected an id and an entry with content"
            )
        ids[text] = int(str(number))
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


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _tokenizer_config(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}
