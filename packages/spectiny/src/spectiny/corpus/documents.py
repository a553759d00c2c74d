"""A domain and a seed go in, documents come out. It knows every generator, and no tokenizer."""

import random
from collections.abc import Callable, Iterator

from spectiny.corpus.classes import class_request
from spectiny.corpus.functions import function_request
from spectiny.corpus.problems import problem
from spectiny.corpus.shifted import shifted_problem
from spectiny.corpus.stdlib import stdlib
from spectiny.corpus.stories import story
from spectiny.document import DOMAINS, Document

HELD_OUT_SEED = 1_000_003
"""Seed of the held-out prompts; training seeds are small numbers."""

LIBRARY_SEEDS = (0, 1, 2)
"""Seeds by which the library is cut for training, each at other lines."""


def _code(rng: random.Random) -> Document:
    return class_request(rng) if rng.random() < 0.3 else function_request(rng)


_GENERATORS: dict[str, Callable[[random.Random], Document]] = {
    "math": problem,
    "code": _code,
    "story": story,
    "math-shifted": shifted_problem,
}


def documents(domain: str, seed: int, count: int) -> Iterator[Document]:
    """Yield up to `count` documents of a domain; the same arguments give the same documents.

    The domain "stdlib" ends early when the library is used up. Its held-out files are left out here.
    """
    if domain == "stdlib":
        for _, document in zip(range(count), stdlib(held_out=False, seed=seed), strict=False):
            yield document
        return
    if domain not in _GENERATORS:
        raise ValueError(f"documents: got domain {domain!r}, expected one of {', '.join(DOMAINS)}")
    rng = random.Random(f"{domain}/{seed}")
    for _ in range(count):
        yield _GENERATORS[domain](rng)


def held_out(domain: str, count: int) -> list[Document]:
    """Return `count` documents with distinct prompts, none of which training may use."""
    if domain == "stdlib":
        source: Iterator[Document] = iter(_whole_starts())
    else:
        source = documents(domain, HELD_OUT_SEED, 50 * count)
    kept: dict[str, Document] = {}
    for document in source:
        if len(kept) == count:
            break
        kept.setdefault(document.prompt, document)
    if len(kept) < count:
        raise ValueError(f"held_out: got {len(kept)} distinct prompts of domain {domain!r}, expected {count}")
    return list(kept.values())


def _whole_starts() -> list[Document]:
    """Return held-out library documents that begin where a function or class begins, in random order.

    A few beginnings, such as that of a plain `__repr__`, occur in many modules; those that training sees are left out.
    """
    starts = ("def ", "async def ", "class ", "@")
    seen = {one.prompt for seed in LIBRARY_SEEDS for one in stdlib(held_out=False, seed=seed)}
    found = [
        one
        for one in stdlib(held_out=True, seed=HELD_OUT_SEED)
        if one.prompt.startswith(starts) and one.prompt not in seen
    ]
    random.Random(HELD_OUT_SEED).shuffle(found)
    return found
