"""Text comes out in whole characters, and a stop text never shows, wherever tokens cut either of them.

Catches decoding token by token (replacement characters in the stream) and looking for stop texts only behind a block.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specrun.text import TextStream

from doubles.pieces import Pieces, bytes_and_words

MIXED = "a\uc0bc \U0001f389\u00e9"
"""One, two, three and four bytes per character."""
BROKEN = "\ufffd"


def chunkings(data):
    """All ways to cut bytes into tokens."""
    for cuts in itertools.product([False, True], repeat=len(data) - 1):
        pieces, start = [], 0
        for place, cut in enumerate(cuts, start=1):
            if cut:
                pieces.append(data[start:place])
                start = place
        yield [*pieces, data[start:]]


def streamed(pieces, stops=()):
    """Push one token per piece; what came out after each, what came at the end, and how many were taken."""
    stream, given_out = TextStream(Pieces(pieces), stops), []
    for token_id in range(len(pieces)):
        stopped = stream.push(token_id)
        given_out.append(stream.take())
        if stopped:
            break
    rest = stream.finish()
    assert "".join(given_out) + rest == stream.text
    return given_out, rest, len(given_out)


def test_every_chunking_gives_whole_characters_as_soon_as_they_are_whole():
    for pieces in chunkings(MIXED.encode()):
        given_out, rest, _ = streamed(pieces)
        assert "".join(given_out) == MIXED
        assert rest == ""
        for count, text in enumerate(given_out, start=1):
            complete = b"".join(pieces[:count]).decode(errors="ignore")
            # whole tokens at a time: a token that ends inside a character waits for the next
            assert complete.startswith("".join(given_out[:count]))
            assert BROKEN not in text
            if complete.encode() == b"".join(pieces[:count]):
                assert "".join(given_out[:count]) == complete


@pytest.mark.parametrize("stop", ["\uc0bc", " \U0001f389", "\U0001f389\u00e9", "a\uc0bc \U0001f389\u00e9"])
def test_every_chunking_ends_at_the_stop_text(stop):
    kept = MIXED[: MIXED.index(stop)]
    for pieces in chunkings(MIXED.encode()):
        given_out, rest, taken = streamed(pieces, (stop,))
        assert "".join(given_out) + rest == kept
        # the token that completes the stop text is the last one taken
        complete = [
            stop in b"".join(pieces[:count]).decode(errors="ignore") for count in range(len(pieces) + 1)
        ]
        assert taken == complete.index(True)


def test_the_start_of_a_stop_text_is_held_and_given_back():
    stream = TextStream(bytes_and_words(), ("xyz", "yq"))
    seen = []
    for byte in b"axyxyy":
        assert not stream.push(byte)
        seen.append(stream.take())
    assert seen == ["a", "", "", "xy", "", "xy"]
    assert stream.finish() == "y"
    assert stream.text == "axyxyy"


def test_the_stop_text_that_begins_first_cuts():
    stream = TextStream(bytes_and_words(b"one stop two"), ("two", "stop"))
    assert stream.push(256)
    assert stream.take() == "one "
    assert stream.finish() == ""


def test_text_behind_a_stop_in_the_same_token_is_gone():
    stream = TextStream(bytes_and_words(b"ab#cd"), ("#",))
    assert stream.push(256)
    assert stream.finish() == "ab"


def test_an_unfinished_character_comes_at_the_end():
    stream = TextStream(bytes_and_words(), ())
    for byte in "\uc0bc".encode()[:2]:
        stream.push(byte)
    assert stream.take() == ""
    assert stream.finish() == BROKEN


def test_tokens_without_text_change_nothing():
    pieces = bytes_and_words()
    stream = TextStream(pieces, ("lo",))
    data = "h\u00e9l".encode()
    out = ""
    for token_id in [256, *itertools.chain.from_iterable((byte, 256) for byte in data)]:
        stream.push(token_id)
        out += stream.take()
    assert out == "h\u00e9"
    assert out + stream.finish() == "h\u00e9l"


GARBAGE = st.lists(
    st.sampled_from(
        [b"a", b"\xed", b"\x95\x9c", b"\x9c", b"\xf0\x9f", b"\x8e", b"\x89", b"\xff", b"bc", b"", b"\xc3"]
    ),
    max_size=24,
)


@given(GARBAGE)
def test_the_stream_is_the_decoded_whole(pieces):
    given_out, rest, _ = streamed(pieces)
    assert "".join(given_out) + rest == Pieces(pieces).decode(list(range(len(pieces))))


@given(st.lists(st.sampled_from([b"a", b"b", b"ab", b"aab", b"ba"]), max_size=16))
def test_stop_texts_in_periodic_text(pieces):
    whole = b"".join(pieces).decode()
    given_out, rest, _ = streamed(pieces, ("abab", "bba"))
    found = [place for stop in ("abab", "bba") if (place := whole.find(stop)) >= 0]
    shown = "".join(given_out) + rest
    # two stop texts may overlap; the one that is complete first ends the text
    assert whole.startswith(shown)
    assert "abab" not in shown
    assert "bba" not in shown
    assert bool(found) == (shown != whole)
