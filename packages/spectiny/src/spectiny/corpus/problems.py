"""A random generator goes in, a word problem with worked steps comes out."""

import random
from collections.abc import Callable

from spectiny.corpus import counting, measuring
from spectiny.corpus.phrasing import sentence
from spectiny.corpus.reasoning import Problem
from spectiny.document import Document

_KINDS: tuple[Callable[[random.Random], Problem], ...] = (
    counting.collection, counting.collection, counting.shopping, counting.sharing, measuring.distance, measuring.ages, counting.factory, measuring.reading, counting.garden, measuring.savings, measuring.bus,
    counting.baking, measuring.compare,
)  # fmt: skip
_LEADS = (
    "<|let us <think|go> step by step. |we work it out <in steps|one step at a time>. |let us see. |we read the problem "
    "again and go <through it |>in order. |there are <a few|some> steps to <take|do>. >"
)
_SCENES = (
    "<|||||it is a <sunny|cold|quiet|busy> <day|morning|week> in <the village|town|the city>. |<on|last> <Monday|Tuesday|"
    "Friday|Sunday> <the whole family is|all the friends are> at home. |$p and $q live in the same <street|house|town>. >"
)


def problem(rng: random.Random) -> Document:
    """Return one word problem of the training kinds."""
    job = rng.choice(_KINDS)(rng)
    lead = sentence(rng, _LEADS)
    if lead:
        job.steps.insert(0, lead)
    scene = sentence(rng, _SCENES, job.fields)
    if scene:
        job.told.insert(0, scene)
    answer = job.fields["answer"]
    assert isinstance(answer, int), answer
    return job.document("math", answer)
