"""A seed goes in, word problems whose numbers stay small come out: what a model of few parameters can learn to compute."""

import re
from collections.abc import Iterator
from itertools import count

from spectiny.corpus.documents import HELD_OUT_SEED, documents
from spectiny.document import Document

LARGEST = 20
"""No number of a small problem, its worked steps included, is above this."""

HELD_OUT = 400
"""So many small problems are kept from training."""


def small_problems(seed: int, number: int) -> list[Document]:
    """Return problems with distinct prompts, none of them held out."""
    kept = {document.prompt for document in held_out_small()}
    return _distinct(seed, number, kept)


def held_out_small() -> list[Document]:
    """Return the problems that training may not use."""
    return _distinct(HELD_OUT_SEED, HELD_OUT, set())


def _distinct(seed: int, number: int, seen: set[str]) -> list[Document]:
    found: list[Document] = []
    for document in _small(seed):
        if len(found) == number:
            break
        if document.prompt not in seen:
            seen.add(document.prompt)
            found.append(document)
    return found


def _small(seed: int) -> Iterator[Document]:
    """Yield small problems without end: one stream of a seed after the other."""
    for part in count():
        for document in documents("math", seed + part, 10_000):
            if max(map(int, re.findall(r"\d+", document.prompt + document.response))) <= LARGEST:
                yield document
