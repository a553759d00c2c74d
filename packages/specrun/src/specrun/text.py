"""Token ids in one at a time, text out in whole characters; stop texts are found here and cut off."""

from specrun.tokens import Tokenizer

_BROKEN = "\N{REPLACEMENT CHARACTER}"


class TextStream:
    """The text of one answer while it grows.

    Nothing is given out that could still change: not the first bytes of a character, and nothing that may turn out to
    be the start of a stop text.
    """

    def __init__(self, tokenizer: Tokenizer, stops: tuple[str, ...]) -> None:
        self._tokenizer, self._stops = tokenizer, stops
        self._ids: list[int] = []
        self._settled = 0  # ids whose text is in `_text`
        self._anchor = 0  # decoding starts here: some tokenizers join a token to the one before it
        self._text = ""
        self._given = 0
        self.stopped = False

    def push(self, token_id: int) -> bool:
        """Take one id; True once a stop text is complete, after which nothing may be pushed."""
        assert not self.stopped, "pushed behind a stop text"
        self._ids.append(token_id)
        known = self._tokenizer.decode(self._ids[self._anchor : self._settled])
        grown = self._tokenizer.decode(self._ids[self._anchor :])
        fresh = grown[len(known) :]
        if (
            not self._cut_at_stop(self._text + fresh.rstrip(_BROKEN))
            and fresh
            and not fresh.endswith(_BROKEN)
        ):
            self._text += fresh
            self._anchor, self._settled = self._settled, len(self._ids)
        return self.stopped

    def take(self) -> str:
        """New text that can no longer change."""
        end = len(self._text) - (0 if self.stopped else self._held())
        piece = self._text[self._given : max(end, self._given)]
        self._given += len(piece)
        return piece

    def finish(self) -> str:
        """The rest, once no more ids come: held text and an unfinished character included."""
        if not self.stopped:
            known = self._tokenizer.decode(self._ids[self._anchor : self._settled])
            self._text += self._tokenizer.decode(self._ids[self._anchor :])[len(known) :]
            self._settled = self._anchor = len(self._ids)
        piece = self._text[self._given :]
        self._given = len(self._text)
        return piece

    @property
    def text(self) -> str:
        """All text so far."""
        return self._text

    def _cut_at_stop(self, text: str) -> bool:
        found = [place for stop in self._stops if (place := text.find(stop, max(0, self._given))) >= 0]
        if found:
            self._text = text[: min(found)]
            self.stopped = True
        return self.stopped

    def _held(self) -> int:
        longest = max(map(len, self._stops), default=1) - 1
        for length in range(min(longest, len(self._text) - self._given), 0, -1):
            if any(stop.startswith(self._text[-length:]) for stop in self._stops):
                return length
        return 0
