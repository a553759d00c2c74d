"""Where an answer ends, for every method, in batches and in conversations: ids, text, counters and the reason.

Budgets, stop ids and stop texts fall on all sides of a block. Expected answers are plain decoding without cache
(`reference.plain`), cut by hand.
"""

from functools import cache

import pytest

from specrun import Sampling

from doubles.engines import ALL_METHODS, engine_for, small_target
from doubles.pieces import PIECES
from reference.plain import continuation, cut

BLOCK = 6
PROMPT = [5, 2, 19]
LIVELY = {"temperature": 1.5, "seed": 8}


@cache
def target():
    return small_target()


@cache
def plain(number):
    """More tokens than any case asks for, of the request with this number."""
    return continuation(target(), PROMPT, Sampling(**LIVELY), request=number, length=3 * BLOCK).tokens


@cache
def cases():
    """(sampling, tokens, text, reason) of requests 0, 1, 2 and so on."""
    made = []
    for budget in (0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1):
        sampling = Sampling(max_new_tokens=budget, stop_ids=(), **LIVELY)
        tokens, reason = cut(plain(len(made)), budget)
        made.append((sampling, tokens, PIECES.decode(tokens), reason))
    for place in (0, 1, BLOCK - 1, BLOCK, 2 * BLOCK):
        # where the stop is the last token of the budget, it is the reason
        stops = (plain(len(made))[place], 30)
        sampling = Sampling(max_new_tokens=place + 1, stop_ids=stops, **LIVELY)
        tokens, reason = cut(plain(len(made)), place + 1, stops)
        made.append((sampling, tokens, PIECES.decode(tokens), reason))
    for place in (0, 3, BLOCK):
        tokens = plain(len(made))
        stop = next(
            text[-1:]
            for end in range(place, 3 * BLOCK)
            if (text := PIECES.decode(tokens[: end + 1]))[-1:].isalpha()
        )
        end = next(count for count in range(1, 3 * BLOCK + 1) if stop in PIECES.decode(tokens[:count]))
        text = PIECES.decode(tokens[:end])
        sampling = Sampling(max_new_tokens=3 * BLOCK, stop_ids=(), stop=("\x00", stop), **LIVELY)
        made.append((sampling, tokens[:end], text[: text.index(stop)], "stop"))
    return made


def check(answer, expected):
    _, tokens, text, reason = expected
    assert (answer.token_ids, answer.text, answer.finish) == (tokens, text, reason)
    stats = answer.stats
    assert stats.tokens == len(tokens)
    assert stats.round_tokens == max(0, len(tokens) - 1)
    assert sum(stats.accepted) <= stats.round_tokens


def test_the_cases_are_what_they_are_meant_to_be():
    assert {reason for _, _, _, reason in cases()} == {"stop", "length"}
    assert {len(tokens) for _, tokens, _, _ in cases()} >= {0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1}


@pytest.mark.parametrize("name", ALL_METHODS)
def test_ends_in_a_batch(name):
    """Three rows at a time, so that rows end while others go on and are taken by the next."""
    engine = engine_for(name, target(), tokenizer=PIECES)
    samplings = [sampling for sampling, *_ in cases()]
    answers = engine.generate_batch([PROMPT] * len(samplings), samplings, batch_size=3)
    for answer, expected in zip(answers, cases(), strict=True):
        check(answer, expected)


@pytest.mark.parametrize("name", ALL_METHODS)
def test_ends_in_a_conversation(name):
    """The same requests one by one on rows that are kept; the pieces of a stream are the whole of it."""
    engine = engine_for(name, target(), tokenizer=PIECES)
    for number, expected in enumerate(cases()):
        pieces = list(engine.stream(PROMPT, expected[0], number=number, reuse=True))
        check(pieces[-1].generation, expected)
        assert [token for piece in pieces for token in piece.token_ids] == expected[1]
        assert "".join(piece.text for piece in pieces) == expected[2]
