"""The JSON body of a request in, checked settings out; everything wrong with it is a ValueError of one line.

What OpenAI's interface has and this server does not is refused, not ignored: an answer must be what was asked for.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from specrun import Engine, Sampling

MOST_CHOICES: Final = 16
MOST_PROMPTS: Final = 256
MOST_STOPS: Final = 16

_WITHOUT_EFFECT: Final = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier"})
_ROLES: Final = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_LEFT_OUT: Final[tuple[object, ...]] = (
    False,
    [],
    {},
    {"type": "text"},
)  # values that say the default of a field that is not supported


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one request wants."""

    prompts: list[list[int]]
    sampling: Sampling
    choices: int  # answers per prompt
    stream: bool
    usage: bool  # a last chunk of the stream says what was used


class UnknownModelError(ValueError):
    """The request names a model that is not served."""


def chat_ask(body: object, engine: Engine, *, model: str, tokens: int) -> Ask:
    """A request for the next turn of a conversation."""
    fields = _Fields(body)
    thinking = _thinking(fields)
    prompt = engine.chat_ids(_messages(fields.take("messages", list)), thinking=thinking)
    limit = fields.take("max_completion_tokens", int, None)
    older = fields.take("max_tokens", int, None)
    return _ask(fields, engine, [prompt], limit if limit is not None else older, model=model, tokens=tokens)


def completion_ask(body: object, engine: Engine, *, model: str, tokens: int) -> Ask:
    """A request to continue one or several texts, or lists of ids, as they stand."""
    fields = _Fields(body)
    given = fields.take("prompt", (str, list))
    listed = [given] if isinstance(given, str) or _are_ids(given) else given
    if not 0 < len(listed) <= MOST_PROMPTS:
        raise ValueError(f"prompt: got {len(listed)} prompts, expected 1 to {MOST_PROMPTS}")
    for prompt in listed:
        if not isinstance(prompt, str) and not _are_ids(prompt):
            raise ValueError("prompt: got neither text nor ids, expected a text, ids, or a list of either")
        _require_text("prompt", prompt)
    prompts = [engine.prompt_ids(prompt) for prompt in listed]
    limit = fields.take("max_tokens", int, None)
    return _ask(fields, engine, prompts, limit, model=model, tokens=tokens)


def _ask(
    fields: "_Fields", engine: Engine, prompts: list[list[int]], limit: int | None, *, model: str, tokens: int
) -> Ask:
    named = fields.take("model", str, model)
    if named != model:
        raise UnknownModelError(f"model: got {named!r}, expected {model!r}, the one that is served")
    choices = fields.take("n", int, 1)
    if not 1 <= choices <= MOST_CHOICES:
        raise ValueError(f"n: got {choices}, expected 1 to {MOST_CHOICES}")
    longest = max(map(len, prompts))
    sampling = Sampling(
        max_new_tokens=max(1, min(tokens, engine.context - longest)) if limit is None else limit,
        temperature=fields.number("temperature", 1.0),
        top_p=fields.number("top_p", 1.0),
        top_k=max(0, fields.take("top_k", int, 0)),  # -1 is another way to say all
        min_p=fields.number("min_p", 0.0),
        repetition_penalty=fields.number("repetition_penalty", 1.0),
        presence_penalty=fields.number("presence_penalty", 0.0),
        frequency_penalty=fields.number("frequency_penalty", 0.0),
        seed=fields.take("seed", int, secrets.randbits(62)),
        stop=_stops(fields.take("stop", (str, list), [])),
    )
    stream = fields.take("stream", bool, False)
    options = fields.take("stream_options", dict, {})
    ask = Ask(
        prompts=prompts,
        sampling=sampling,
        choices=choices,
        stream=stream,
        usage=bool(_Fields(options).take("include_usage", bool, False)),
    )
    fields.finish()
    for prompt in prompts:
        engine.check(prompt, sampling)
    return ask


def _messages(turns: list[Any]) -> list[dict[str, str]]:
    if not turns:
        raise ValueError("messages: got none, expected at least one")
    return [_turn(turn) for turn in turns]


def _turn(turn: object) -> dict[str, str]:
    fields = _Fields(turn, "messages: ")
    role = fields.take("role", str)
    if role not in _ROLES:
        raise ValueError(f"messages: role: got {role!r}, expected one of {', '.join(_ROLES)}")
    content = fields.take("content", (str, list))
    fields.finish()
    if isinstance(content, list):
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            raise ValueError("messages: content: got a part that is no text, expected text alone")
        content = "".join(part["text"] for part in content)
    _require_text("messages", content)
    return {"role": _ROLES[role], "content": content}


def _thinking(fields: "_Fields") -> bool:
    options = _Fields(fields.take("chat_template_kwargs", dict, {}), "chat_template_kwargs: ")
    thinking = options.take("enable_thinking", bool, False)
    options.finish()
    return bool(thinking)


def _stops(given: str | list[Any]) -> tuple[str, ...]:
    stops = (given,) if isinstance(given, str) else tuple(given)
    if len(stops) > MOST_STOPS or not all(isinstance(stop, str) for stop in stops):
        raise ValueError(f"stop: got {given!r:.80}, expected a text or at most {MOST_STOPS} texts")
    for stop in stops:
        _require_text("stop", stop)
    return stops


def _require_text(name: str, text: object) -> None:
    """JSON can spell half of a character, which no tokenizer takes."""
    if isinstance(text, str) and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(f"{name}: got a lone surrogate, expected whole characters")


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


class _Fields:
    """The fields of a JSON object, each taken once; null counts as absent."""

    def __init__(self, body: object, where: str = "") -> None:
        if not isinstance(body, Mapping):
            raise ValueError(f"{where or 'body: '}got {type(body).__name__}, expected a JSON object")  # noqa: TRY004 - a client's text
        self._left = {name: value for name, value in body.items() if value is not None}
        self._where = where

    def take(self, name: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """A value of exactly one of the kinds: to isinstance, true is a number."""
        if name not in self._left:
            if default is ...:
                raise ValueError(f"{self._where}{name}: missing, expected a value")
            return default
        value = self._left.pop(name)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if type(value) not in kinds:
            expected = " or ".join(one.__name__ for one in kinds)
            raise ValueError(f"{self._where}{name}: got {value!r:.80}, expected {expected}")
        return value

    def number(self, name: str, default: float) -> float:
        """A value in the range of single precision."""
        value = self.take(name, (int, float), default)
        if not abs(value) <= 3e38:
            raise ValueError(f"{self._where}{name}: got a number out of range")
        return float(value)

    def finish(self) -> None:
        """Refuse what nobody took and what would have had an effect."""
        odd = [
            name
            for name, value in self._left.items()
            if name not in _WITHOUT_EFFECT and value not in _LEFT_OUT
        ]
        if odd:
            raise ValueError(f"{self._where}{', '.join(sorted(odd))}: not supported; leave it out")
