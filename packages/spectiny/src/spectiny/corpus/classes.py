"""A random generator goes in, a request for a small Python class and its source come out."""

import random
from dataclasses import dataclass

from spectiny.corpus.phrasing import article, say, sentence
from spectiny.document import Document


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a class, with the words that ask for it."""

    asks: str  # as in "adds an item"
    head: str  # as in "add(self, $x)"
    bodies: tuple[str, ...]  # implementations, indented by nothing


@dataclass(frozen=True, slots=True)
class ClassKind:
    """One kind of class: names, constructor and the methods to choose from."""

    names: str  # class names, apart by spaces
    about: str  # as in "a stack of items"
    head: str  # parameters of the constructor after self
    init: str  # body of the constructor
    methods: tuple[Method, ...]


_POOLS = {
    "x": "item value entry element thing".split(),
    "xs": "items values entries elements content".split(),
    "n": "amount number count step".split(),
    "k": "key name label title".split(),
    "t": "total balance score level sum".split(),
    "d": "table data store stock".split(),
    "w": "width a length".split(),
    "h": "height b depth".split(),
}

CLASS_KINDS: tuple[ClassKind, ...] = (
    ClassKind("Stack ItemStack SimpleStack Pile", "a stack", "", "self.$xs = []", (
        Method("adds <one|a new $x>", "push(self, $x)", ("self.$xs.append($x)",)),
        Method("takes the <top one|last one> off", "pop(self)",
               ("return self.$xs.pop()", "if not self.$xs:\n    return None\nreturn self.$xs.pop()")),
        Method("looks at the top", "peek(self)", ("return self.$xs[-1]", "return self.$xs[-1] if self.$xs else None")),
        Method("tells whether it is empty", "is_empty(self)", ("return not self.$xs", "return len(self.$xs) == 0")),
        Method("gives the size", "size(self)", ("return len(self.$xs)",)),
    )),
    ClassKind("Queue Line WaitingLine SimpleQueue", "a queue", "", "self.$xs = []", (
        Method("adds <one|a new $x> at the end", "put(self, $x)", ("self.$xs.append($x)",)),
        Method("takes the first one out", "get(self)",
               ("return self.$xs.pop(0)", "if not self.$xs:\n    return None\nreturn self.$xs.pop(0)")),
        Method("looks at the first one", "first(self)", ("return self.$xs[0]", "return self.$xs[0] if self.$xs else None")),
        Method("gives the length", "length(self)", ("return len(self.$xs)",)),
        Method("removes everything", "clear(self)", ("self.$xs = []", "self.$xs.clear()")),
    )),
    ClassKind("Counter Tally ClickCounter StepCounter", "a counter", "", "self.$t = 0", (
        Method("adds one", "increment(self)", ("self.$t += 1", "self.$t = self.$t + 1")),
        Method("takes one away", "decrement(self)", ("self.$t -= 1", "if self.$t > 0:\n    self.$t -= 1")),
        Method("adds a number", "add(self, $n)", ("self.$t += $n", "self.$t = self.$t + $n")),
        Method("goes back to zero", "reset(self)", ("self.$t = 0",)),
        Method("gives the <state|current value>", "get(self)", ("return self.$t",)),
    )),
    ClassKind("Account BankAccount Wallet Purse", "<an account|a place> for money", "owner", "self.owner = owner\nself.$t = 0", (
        Method("puts money in", "deposit(self, $n)", ("self.$t += $n", "if $n < 0:\n    raise ValueError(\"negative $n\")\nself.$t += $n")),
        Method("takes money out", "withdraw(self, $n)",
               ("if $n > self.$t:\n    raise ValueError(\"not enough money\")\nself.$t -= $n",
                "if $n > self.$t:\n    return False\nself.$t -= $n\nreturn True")),
        Method("tells whether it is empty", "is_empty(self)", ("return self.$t == 0",)),
        Method("describes it", "describe(self)", ("return f\"{self.owner} has {self.$t}\"", "return self.owner + \": \" + str(self.$t)")),
        Method("adds interest in percent", "add_interest(self, rate)", ("self.$t += self.$t * rate / 100", "self.$t *= 1 + rate / 100")),
    )),
    ClassKind("Rectangle Box Room Field", "a rectangle", "$w, $h", "self.$w = $w\nself.$h = $h", (
        Method("computes the area", "area(self)", ("return self.$w * self.$h",)),
        Method("computes the perimeter", "perimeter(self)", ("return 2 * (self.$w + self.$h)", "return 2 * self.$w + 2 * self.$h")),
        Method("tells whether it is square", "is_square(self)", ("return self.$w == self.$h",)),
        Method("scales both sides", "scale(self, factor)", ("self.$w *= factor\nself.$h *= factor",
                                                           "self.$w = self.$w * factor\nself.$h = self.$h * factor")),
        Method("swaps the sides", "turn(self)", ("self.$w, self.$h = self.$h, self.$w",)),
    )),
    ClassKind("Inventory Warehouse Shelf Storage", "<an inventory|a store of goods>", "", "self.$d = {}", (
        Method("adds goods", "add(self, $k, $n)", ("self.$d[$k] = self.$d.get($k, 0) + $n",
                                                  "if $k not in self.$d:\n    self.$d[$k] = 0\nself.$d[$k] += $n")),
        Method("removes goods", "remove(self, $k, $n)", ("self.$d[$k] -= $n", "if self.$d.get($k, 0) < $n:\n    return False\nself.$d[$k] -= $n\nreturn True")),
        Method("tells how much there is", "amount_of(self, $k)", ("return self.$d.get($k, 0)",)),
        Method("adds everything up", "total(self)", ("return sum(self.$d.values())",)),
        Method("lists the names", "names(self)", ("return sorted(self.$d)", "return list(self.$d)")),
    )),
    ClassKind("PhoneBook Directory Contacts Dictionary", "a <book of entries|directory>", "", "self.$d = {}", (
        Method("stores <one|an entry>", "store(self, $k, $x)", ("self.$d[$k] = $x",)),
        Method("finds <one|an entry>", "find(self, $k)", ("return self.$d.get($k)", "if $k in self.$d:\n    return self.$d[$k]\nreturn None")),
        Method("deletes <one|an entry>", "delete(self, $k)", ("self.$d.pop($k, None)", "if $k in self.$d:\n    del self.$d[$k]")),
        Method("tells whether a name is known", "has(self, $k)", ("return $k in self.$d",)),
        Method("gives the size", "size(self)", ("return len(self.$d)",)),
    )),
    ClassKind("Scores ScoreBoard Grades Marks", "a list of scores", "", "self.$xs = []", (
        Method("adds a score", "add(self, $n)", ("self.$xs.append($n)",)),
        Method("gives the <best|highest> one", "best(self)", ("return max(self.$xs)", "return max(self.$xs, default=0)")),
        Method("gives the <worst|lowest> one", "worst(self)", ("return min(self.$xs)", "return min(self.$xs, default=0)")),
        Method("computes the mean", "mean(self)", ("return sum(self.$xs) / len(self.$xs)", "if not self.$xs:\n    return 0\nreturn sum(self.$xs) / len(self.$xs)")),
        Method("counts those above a limit", "above(self, limit)", ("return sum(1 for $x in self.$xs if $x > limit)", "return len([$x for $x in self.$xs if $x > limit])")),
    )),
    ClassKind("Point Vector Place Position", "a point", "x, y", "self.x = x\nself.y = y", (
        Method("moves it", "move(self, dx, dy)", ("self.x += dx\nself.y += dy", "self.x = self.x + dx\nself.y = self.y + dy")),
        Method("adds another one", "add(self, other)", ("return $cls(self.x + other.x, self.y + other.y)",)),
        Method("computes the squared length", "squared(self)", ("return self.x ** 2 + self.y ** 2", "return self.x * self.x + self.y * self.y")),
        Method("tells whether two are equal", "same(self, other)", ("return self.x == other.x and self.y == other.y",)),
        Method("swaps the axes", "flip(self)", ("return $cls(self.y, self.x)", "self.x, self.y = self.y, self.x")),
    )),
    ClassKind("Playlist Album SongList Library", "a <list of titles|collection of titles>", "owner", "self.owner = owner\nself.$xs = []", (
        Method("adds a title", "add(self, $k)", ("self.$xs.append($k)", "if $k not in self.$xs:\n    self.$xs.append($k)")),
        Method("removes a title", "remove(self, $k)", ("self.$xs.remove($k)", "if $k in self.$xs:\n    self.$xs.remove($k)")),
        Method("finds titles with a word", "search(self, word)", ("return [$k for $k in self.$xs if word in $k]",)),
        Method("sorts the titles", "sort(self)", ("self.$xs.sort()", "self.$xs = sorted(self.$xs)")),
        Method("gives the longest title", "longest(self)", ("return max(self.$xs, key=len)",)),
    )),
    ClassKind("Lamp Radio Heater Fan", "a device with levels", "limit", "self.limit = limit\nself.on = False\nself.$t = 0", (
        Method("switches it on or off", "switch(self)", ("self.on = not self.on",)),
        Method("turns it up", "up(self)", ("if self.$t < self.limit:\n    self.$t += 1", "self.$t = min(self.limit, self.$t + 1)")),
        Method("turns it down", "down(self)", ("if self.$t > 0:\n    self.$t -= 1", "self.$t = max(0, self.$t - 1)")),
        Method("tells whether it is <on|running>", "is_on(self)", ("return self.on",)),
        Method("describes it", "describe(self)", ("return f\"{self.$t} of {self.limit}\"", "return \"on\" if self.on else \"off\"")),
    )),
)  # fmt: skip
"""Every kind of class of the code domain."""

_ADJECTIVES = ("", "", "My", "Small", "Simple", "New")


def class_request(rng: random.Random) -> Document:
    """Return a request for a class, or its first line, with the source as the answer."""
    kind = rng.choice(CLASS_KINDS)
    fields: dict[str, object] = {key: rng.choice(pool) for key, pool in _POOLS.items()}
    base = rng.choice(kind.names.split())
    name = base if base.startswith("Simple") else rng.choice(_ADJECTIVES) + base
    fields["cls"] = name
    methods = rng.sample(kind.methods, rng.randint(2, 4))
    about = say(rng, kind.about, fields)
    documented = rng.random() < 0.5
    parts = []
    head = say(rng, kind.head, fields)
    parts.append(_block(f"def __init__(self{', ' if head else ''}{head}):", say(rng, kind.init, fields)))
    for method in methods:
        body = say(rng, rng.choice(method.bodies), fields)
        if documented and rng.random() < 0.6:
            body = f'"""{sentence(rng, method.asks, fields)}."""\n' + body
        parts.append(_block(f"def {say(rng, method.head, fields)}:", body))
    if documented:
        parts.insert(0, f'    """{sentence(rng, about)}."""')
    source = "\n\n".join(parts)
    if rng.random() < 0.2:
        return Document("code", f"class {name}:", source)
    wishes = [f"`{method.head.split('(')[0]}` {say(rng, method.asks, fields)}" for method in methods]
    fields.update(about=about, base=article(base.lower()))
    prompt = sentence(
        rng,
        "<<please |>write a <Python |>class `$cls`|define `$cls`, a class|I need a <Python |>class <named|called> `$cls`|"
        "implement the class `$cls`> for $about.",
        fields,
    )
    prompt += say(rng, " <The method|In it|There,> ") + ", ".join(wishes[:-1]) + " and " + wishes[-1] + "."
    if documented:
        prompt += say(rng, " <Add docstrings.|Write docstrings.>")
    return Document("code", prompt, f"class {name}:\n{source}")


def _block(head: str, body: str) -> str:
    inner = "\n".join(f"        {line}" for line in body.split("\n"))
    return f"    {head}\n{inner}"
