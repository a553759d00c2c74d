"""What users write in, prompt ids out: plain text as it stands, conversations through the model's chat template."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specmodels.template import ChatTemplate, conversation
from specrun.tokens import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompting:
    """The tokenizer and template of a model; either may be missing until it is asked for."""

    tokenizer: Tokenizer | None
    template: ChatTemplate | ValueError | None  # the error says why there is none

    def chat_ids(
        self, messages: str | Sequence[Mapping[str, str]], *, system: str | None, thinking: bool
    ) -> list[int]:
        """Ids of a conversation, or of one user turn."""
        if isinstance(self.template, ValueError):
            raise self.template
        if self.template is None or self.tokenizer is None:
            raise ValueError("chat template: this engine has none; give the prompt as plain text")
        turns = conversation(messages, system=system) if isinstance(messages, str) else list(messages)
        return self.tokenizer.encode(self.template.render(turns, enable_thinking=thinking), special=False)

    def ids(self, prompt: str | Sequence[int], vocabulary: int) -> list[int]:
        """Ids of a text; ids are taken as they are, if the model knows them."""
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise ValueError("prompt: got text, but this engine has no tokenizer; give token ids")
            found = self.tokenizer.encode(prompt, special=True)
        else:
            found = list(prompt)
        if not found:
            raise ValueError("prompt: got no tokens, expected at least one")
        if not all(0 <= token < vocabulary for token in found):
            raise ValueError(
                f"prompt: got a token id outside 0..{vocabulary - 1}; does the tokenizer belong to this model?"
            )
        return found
