"""Small word problems: no number above the limit, none of the held-out ones in training."""

import re

from spectiny.corpus import check
from spectiny.corpus.documents import HELD_OUT_SEED
from spectiny.corpus.small import HELD_OUT, LARGEST, held_out_small, small_problems


def test_numbers_stay_small_and_prompts_differ():
    found = small_problems(3, 500)
    assert len({document.prompt for document in found}) == 500
    for document in found:
        numbers = [int(number) for number in re.findall(r"\d+", document.prompt + document.response)]
        assert max(numbers) <= LARGEST
        assert check(document, document.response)


def test_none_is_held_out():
    held_out = {document.prompt for document in held_out_small()}
    assert len(held_out) == HELD_OUT
    assert not held_out & {document.prompt for document in small_problems(0, 1_000)}


def test_the_held_out_ones_would_come_up_otherwise():
    """The filter has something to do: a stream that begins at their seed gives others."""
    held_out = {document.prompt for document in held_out_small()}
    assert not held_out & {document.prompt for document in small_problems(HELD_OUT_SEED, 50)}
