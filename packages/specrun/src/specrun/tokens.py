"""Text to ids and back; the only file that imports `tokenizers`."""

from pathlib import Path

from tokenizers import Tokenizer as _Tokenizer


class Tokenizer:
    """A Hugging Face `tokenizer.json`."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ValueError(
                f"tokenizer: no tokenizer.json in {folder}; give a folder that holds the whole model"
            )
        try:
            self._inner = _Tokenizer.from_file(str(path))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # for malformed files the library raises bare exceptions, and panics
            raise ValueError(f"tokenizer: {path} cannot be read ({error}); download it again") from error

    @property
    def size(self) -> int:
        """Known ids, special ones included."""
        return int(self._inner.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Ids of a text; `special` lets the tokenizer add its own, such as a leading begin-of-text."""
        return list(self._inner.encode(text, add_special_tokens=special).ids)

    def decode(self, ids: list[int]) -> str:
        """Text of ids, special tokens left out."""
        return str(self._inner.decode(ids, skip_special_tokens=True))

    def spelling(self, token_id: int) -> str:
        """One token for the eye: its text, half a character as U+FFFD, a special token by its name."""
        text = str(self._inner.decode([token_id], skip_special_tokens=False))
        return text or str(self._inner.id_to_token(token_id))

    def token_id(self, token: str) -> int | None:
        """The id of one token by its exact spelling."""
        found = self._inner.token_to_id(token)
        return None if found is None else int(found)
