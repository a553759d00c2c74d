"""Arithmetic goes in, worded steps and a checkable answer come out. It does not know any story around the numbers."""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spectiny.corpus.people import people
from spectiny.corpus.phrasing import say, sentence
from spectiny.document import Document

_THINGS = (
    "apples marbles stickers pencils shells books coins cards stamps buttons beads plums cookies photos badges "
    "feathers keys candles ribbons acorns"
).split()
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
}
_SPOKEN = {
    "+": "<$a + $b = $c|$a + $b = $c|$a plus $b is $c|adding $b to $a gives $c>",
    "-": "<$a - $b = $c|$a - $b = $c|$a minus $b is $c|taking $b from $a leaves $c>",
    "*": "<$a * $b = $c|$a * $b = $c|$a times $b is $c>",
    "/": "<$a / $b = $c|$a / $b = $c|$a divided by $b is $c>",
}
_INVERSE = {"+": "-", "-": "+", "*": "/", "/": "*"}
_ANSWER = re.compile(r"The answer is (-?\d+)\.")


@dataclass(slots=True)
class Problem:
    """A word problem under construction: what it says so far, and the steps that solve it."""

    rng: random.Random
    fields: dict[str, object]  # what $names in the wordings stand for
    told: list[str] = field(default_factory=list)  # sentences of the prompt
    steps: list[str] = field(default_factory=list)  # sentences of the reasoning
    last: tuple[int, str, int, int] | None = None  # the last sum: a, sign, b, result

    def tell(self, template: str, **numbers: object) -> None:
        """Add a sentence to the prompt."""
        self.fields.update(numbers)
        self.told.append(sentence(self.rng, template, self.fields))

    def note(self, template: str) -> None:
        """Add a sentence without arithmetic to the reasoning."""
        self.steps.append(sentence(self.rng, template, self.fields))

    def work(self, a: int, sign: str, b: int, template: str) -> int:
        """Add a step that computes `a sign b`, worded where the template has $sum, and return the result ($c)."""
        c = _OPERATIONS[sign](a, b)
        assert sign != "/" or a % b == 0, (a, b)
        numbers: Mapping[str, object] = {"a": a, "b": b, "c": c}
        spoken = say(self.rng, _SPOKEN[sign], numbers)
        self.steps.append(sentence(self.rng, template, {**self.fields, **numbers, "sum": spoken}))
        self.last = (a, sign, b, c)
        return c

    def document(self, domain: str, answer: int) -> Document:
        """Close the problem with its answer."""
        if self.last is not None and self.rng.random() < 0.5:
            a, sign, b, c = self.last
            back = say(self.rng, _SPOKEN[_INVERSE[sign]], {"a": c, "b": b, "c": a})
            self.steps.append(
                sentence(
                    self.rng,
                    "<as a check,|to check it,|looking back,|it fits, because> $back.",
                    {"back": back},
                )
            )
        self.steps.append(
            sentence(
                self.rng, "<||||so the result is $c.|that is what was asked.|so we have it.>", {"c": answer}
            )
        )
        response = " ".join([*filter(None, self.steps), f"The answer is {answer}."])
        return Document(domain, " ".join(self.told), response)


def start(rng: random.Random) -> Problem:
    """Return an empty problem with three people ($p, $q, $r) and a kind of thing ($things)."""
    fields: dict[str, object] = {}
    for key, person in zip(("p", "q", "r"), people(rng, 3), strict=True):
        fields.update({key: person.name, f"{key}_they": person.they, f"{key}_their": person.their})
    fields["things"] = rng.choice(_THINGS)
    return Problem(rng, fields)


def final_answer(response: str) -> int | None:
    """Return the number of the last 'The answer is N.', or None where there is no such sentence."""
    found = _ANSWER.findall(response)
    return int(found[-1]) if found else None


def check(document: Document, response: str) -> bool:
    """Return whether a response reaches the answer that the document's own response reaches."""
    expected = final_answer(document.response)
    if expected is None:
        raise ValueError(
            f"check: got a document of domain {document.domain!r} without an answer; pass a word problem"
        )
    return final_answer(response) == expected
