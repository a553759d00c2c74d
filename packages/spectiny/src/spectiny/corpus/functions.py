"""A random generator goes in, a request for one to three Python functions and their source come out."""

import random
from dataclasses import dataclass

from spectiny.corpus.function_kind import Kind
from spectiny.corpus.list_functions import LIST_KINDS
from spectiny.corpus.number_functions import NUMBER_KINDS
from spectiny.corpus.phrasing import say, sentence
from spectiny.corpus.text_functions import TEXT_KINDS
from spectiny.document import Document

_POOLS = {
    "xs": "values numbers items data nums entries elements".split(),
    "ys": "others second extra more".split(),
    "x": "value number item x entry element".split(),
    "acc": "result total answer out".split(),
    "best": "best found current".split(),
    "n": "n count limit size".split(),
    "i": "i index k step".split(),
    "s": "text word line string sentence".split(),
    "c": "char letter c ch".split(),
    "d": "counts table seen groups".split(),
    "a": "a left first".split(),
    "b": "b right other".split(),
}


KINDS = (*LIST_KINDS, *NUMBER_KINDS, *TEXT_KINDS)
"""Every kind of function of the code domain."""

_PREFIXES = ("", "", "", "", "", "get_", "compute_", "my_")
_REQUESTS = (
    "<|please >write a <Python |>function <named|called> `$f` that $does.",
    "<write|implement|define> `$f`, a <Python |>function that $does.",
    "<I need|give me|can you write> a <Python |short |>function `$f(<$params|$params>)` that $does<.|, please.>",
    "<in Python, |>how do I write a function `$f` that $does?",
    "<create|make> a function that $does. <call|name> it `$f`.",
)


@dataclass(frozen=True, slots=True)
class Function:
    """A function made from a kind: its source, and what is needed to ask for it and to check it."""

    kind: Kind
    name: str
    number: int  # what $m stands for
    head: str  # the def line
    body: str  # the indented rest
    asks: str  # what it does, with identifiers filled in, as in "returns the sum of the values"


def function(rng: random.Random, kind: Kind, typed: bool, documented: bool) -> Function:
    """Return a random function of a kind, with type hints and a docstring where asked for."""
    fields: dict[str, object] = {key: rng.choice(pool) for key, pool in _POOLS.items()}
    number = rng.randint(2, 12)
    name = rng.choice(_PREFIXES) + rng.choice(kind.names.split())
    fields.update(f=name, m=number)
    takes = say(rng, kind.takes, fields).split(", ")
    params = ", ".join(takes) if typed else ", ".join(part.split(":")[0] for part in takes)
    head = f"def {name}({params}){f' -> {kind.gives}' if typed else ''}:"
    lines = say(rng, rng.choice(kind.bodies), fields).split("\n")
    if documented:
        lines.insert(0, f'"""{sentence(rng, kind.does, fields)}."""')
    body = "\n".join(f"    {line}" for line in lines)
    return Function(kind, name, number, head, body, say(rng, kind.does, fields))


def function_request(rng: random.Random) -> Document:
    """Return a request for one to three functions, or the first line of one, with the source as the answer."""
    form = rng.random()
    typed = rng.random() < 0.4
    documented = rng.random() < 0.5
    if form < 0.22:  # only the first line is given
        one = function(rng, rng.choice(KINDS), typed, documented)
        return Document("code", one.head, one.body)
    kinds = rng.sample(KINDS, 1 if form < 0.4 else 2 if form < 0.7 else 3)
    made = [function(rng, kind, typed, documented) for kind in kinds]
    first = made[0]
    fields = {"f": first.name, "does": first.asks, "params": first.head.split("(", 1)[1].rsplit(")", 1)[0]}
    prompt = sentence(rng, rng.choice(_REQUESTS), fields)
    for one in made[1:]:
        more = "<then|after it,|also> <add|write> <a function |>`$f`, which $does."
        prompt += " " + sentence(rng, more, {"f": one.name, "does": one.asks})
    if typed:
        prompt += say(rng, " <Use|With|Add> type hints.")
    if documented:
        prompt += say(rng, " <Add a docstring.|Write a docstring.|It needs a docstring.>")
    return Document("code", prompt, "\n\n\n".join(f"{one.head}\n{one.body}" for one in made))
