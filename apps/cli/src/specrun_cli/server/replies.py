"""Finished answers and pieces of them in, JSON in the shapes of OpenAI's interface out.

Beside the token counts, `usage` has a field `speculative` with what the draft was worth.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specrun import Generation, Stats

Kind = Literal["chat", "text"]

_OBJECTS = {
    "chat": ("chat.completion", "chat.completion.chunk"),
    "text": ("text_completion", "text_completion"),
}
_PREFIX = {"chat": "chatcmpl", "text": "cmpl"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What all parts of one answer have in common."""

    kind: Kind
    model: str
    method: str
    number: str
    created: int

    @classmethod
    def new(cls, kind: Kind, model: str, method: str) -> "Reply":
        """A reply with an id of its own."""
        return cls(kind, model, method, f"{_PREFIX[kind]}-{secrets.token_hex(12)}", int(time.time()))

    def whole(self, answers: Sequence[Generation], prompts: int) -> dict[str, Any]:
        """All choices at once; `prompts` says how many prompts they continue."""
        choices = []
        for index, answer in enumerate(answers):
            text = (
                {"message": {"role": "assistant", "content": answer.text, "refusal": None}}
                if self.kind == "chat"
                else {"text": answer.text}
            )
            choices.append({"index": index, **text, "finish_reason": answer.finish, "logprobs": None})
        return self._object(0) | {"choices": choices, "usage": self.usage(answers, prompts)}

    def opening(self, index: int) -> dict[str, Any]:
        """The first chunk of a chat's choice."""
        return self._chunk(index, {"delta": {"role": "assistant", "content": ""}}, None)

    def piece(self, index: int, text: str, finish: str | None) -> dict[str, Any]:
        """A chunk with new text, or with the reason why no more comes."""
        if self.kind == "text":
            return self._chunk(index, {"text": text}, finish)
        return self._chunk(index, {"delta": {"content": text} if text else {}}, finish)

    def closing(self, answers: Sequence[Generation], prompts: int) -> dict[str, Any]:
        """The chunk that says what was used."""
        return self._object(1) | {"choices": [], "usage": self.usage(answers, prompts)}

    def usage(self, answers: Sequence[Generation], prompts: int) -> dict[str, Any]:
        """Token counts, and what drafting was worth. A prompt counts once, however many answers it got."""
        total = Stats()
        for answer in answers:
            total.add(answer.stats)
        read = total.prompt_tokens * prompts // max(1, len(answers))
        return {
            "prompt_tokens": read,
            "completion_tokens": total.tokens,
            "total_tokens": read + total.tokens,
            "speculative": {
                "method": self.method,
                "rounds": total.rounds,
                "tokens_per_round": total.tokens_per_round,
                "acceptance_by_depth": total.acceptance_by_depth,
                "tokens_per_second": total.tokens_per_second,
            },
        }

    def _object(self, place: int) -> dict[str, Any]:
        return {
            "id": self.number,
            "object": _OBJECTS[self.kind][place],
            "created": self.created,
            "model": self.model,
        }

    def _chunk(self, index: int, part: dict[str, Any], finish: str | None) -> dict[str, Any]:
        return self._object(1) | {
            "choices": [{"index": index, **part, "finish_reason": finish, "logprobs": None}]
        }


def complaint(
    message: str, *, kind: str = "invalid_request_error", code: str | None = None
) -> dict[str, Any]:
    """An error in the form that clients read."""
    line = " ".join(message.split())
    return {"error": {"message": line, "type": kind, "param": None, "code": code}}
