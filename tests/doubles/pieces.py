"""A tokenizer whose tokens are byte strings, so that characters may be cut anywhere between two of them."""

from collections.abc import Sequence

SPECIAL = b""
"""A token without text, as special tokens are when they are left out."""


class Pieces:
    """Ids are places in a list of byte strings; decoding joins them and replaces what is no UTF-8."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = list(pieces)

    @property
    def size(self) -> int:
        return len(self.pieces)

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Greedy from the left, longest piece first."""
        data, ids = text.encode(), []
        while data:
            fitting = [index for index, piece in enumerate(self.pieces) if piece and data.startswith(piece)]
            best = max(fitting, key=lambda index: len(self.pieces[index]))
            ids.append(best)
            data = data[len(self.pieces[best]) :]
        return ids

    def decode(self, ids: list[int]) -> str:
        return b"".join(self.pieces[index] for index in ids).decode(errors="replace")


def bytes_and_words(*words: bytes, special: int = 1) -> Pieces:
    """Every single byte, then whole words, then tokens without text."""
    return Pieces([bytes([value]) for value in range(256)] + list(words) + [SPECIAL] * special)


PIECES = Pieces(
    [letter.encode() for letter in "abcdefghijklmnop"]
    + [b" ", b"the ", b"stop", b"st", b"op", b"ab", b"\xec\x82", b"\xbc", b"\xf0", b"\x9f\x8e", b"\x89"]
    + [b"\xc3", b"\xa9z", SPECIAL, SPECIAL]
)
"""As many tokens as a small target has; the text is broken in many places, as that of a random model is."""
