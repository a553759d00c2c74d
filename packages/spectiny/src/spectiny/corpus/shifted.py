"""A random generator goes in, a word problem of a kind that is not in the training mix comes out."""

import random
from collections.abc import Callable

from spectiny.corpus.people import people
from spectiny.corpus.reasoning import Problem
from spectiny.document import Document


def _start(rng: random.Random) -> Problem:
    first, second = people(rng, 2)
    return Problem(rng, {"p": first.name, "p_they": first.they, "q": second.name})


def _fence(rng: random.Random) -> tuple[Problem, int]:
    job = _start(rng)
    long, wide, gate = rng.randint(4, 30), rng.randint(3, 20), rng.randint(2, 6)
    job.tell(
        "$p <builds|puts> a fence around a <yard|field> that is $a meters long and $b meters wide.",
        a=long,
        b=wide,
    )
    job.tell("<the gate is $g meters wide and needs no fence|a gate of $g meters needs no fence>.", g=gate)
    job.tell("how many meters of fence <are needed|does $p need>?")
    half = job.work(long, "+", wide, "one long side and one short side <are|make> $c meters: $sum.")
    around = job.work(half, "*", 2, "<all four sides|the whole way around> <are|is> $c meters: $sum.")
    return job, job.work(around, "-", gate, "without the gate it is $c: $sum.")


def _minutes(rng: random.Random) -> tuple[Problem, int]:
    job = _start(rng)
    lessons, each, pause = rng.randint(2, 5), rng.choice((10, 15, 20, 30)), rng.randint(2, 9)
    job.tell("<a concert|a show> has $k <parts|songs> of $m minutes each.", k=lessons, m=each)
    job.tell(
        "<between|after> <two parts|each part but the last> there is a <break|pause> of $g minutes.", g=pause
    )
    job.tell("how many minutes does it <take|last> <in all|all together>?")
    play = job.work(lessons, "*", each, "the $k <parts|songs> take $c minutes: $sum.")
    gaps = job.work(lessons, "-", 1, "there are $c breaks, because $sum.")
    rest = job.work(gaps, "*", pause, "the breaks take $c minutes: $sum.")
    return job, job.work(play, "+", rest, "<together|in all> that is $c minutes: $sum.")


def _stairs(rng: random.Random) -> tuple[Problem, int]:
    job = _start(rng)
    floors, steps, down = rng.randint(4, 9), rng.randint(8, 16), rng.randint(2, 3)
    job.tell("<each|every> floor of a tower has $m steps.", m=steps)
    job.tell("$p <climbs|goes up> $k floors and then <comes|goes> down $d floors.", k=floors, d=down)
    job.tell("how many steps above the ground is $p?")
    up = job.work(floors, "-", down, "$p <stands|is> on floor $c, because $sum.")
    return job, job.work(up, "*", steps, "<each floor has $b steps, so|with $b steps a floor,> $sum.")


def _legs(rng: random.Random) -> tuple[Problem, int]:
    job = _start(rng)
    four, two, gone = rng.randint(2, 15), rng.randint(2, 20), rng.randint(2, 4)
    job.fields.update(cows=rng.choice(("cows", "goats", "pigs")), hens=rng.choice(("hens", "ducks", "geese")))
    job.tell("$p has $k $cows with 4 legs and $m $hens with 2 legs.", k=four, m=two + gone)
    job.tell("$g of the $hens <fly away|are sold to $q>.", g=gone)
    job.tell("how many legs do the animals have <now|that are left>?")
    one = job.work(four, "*", 4, "the $cows have $c legs: $sum.")
    left = job.work(two + gone, "-", gone, "$c $hens are left: $sum.")
    other = job.work(left, "*", 2, "they have $c legs: $sum.")
    return job, job.work(one, "+", other, "<together|in all> there are $c legs: $sum.")


def _scores(rng: random.Random) -> tuple[Problem, int]:
    job = _start(rng)
    mean = rng.randint(5, 40)
    low, gap = rng.randint(1, 4), rng.randint(1, 4)
    first, second, third = mean - low, mean + low + gap, mean - gap
    job.tell("$p <plays|has> three games and <gets|scores> $a, $b and $c points.", a=first, b=second, c=third)
    job.tell("what is the <mean|average> of the three?")
    two = job.work(first, "+", second, "the first two <games|scores> <make|give> $c: $sum.")
    total = job.work(two, "+", third, "with the third it is $c: $sum.")
    return job, job.work(total, "/", 3, "<over three games|for the mean> we divide by $b: $sum.")


_KINDS: tuple[Callable[[random.Random], tuple[Problem, int]], ...] = (
    _fence,
    _minutes,
    _stairs,
    _legs,
    _scores,
)


def shifted_problem(rng: random.Random) -> Document:
    """Return one word problem of the kinds held out of training."""
    job, answer = rng.choice(_KINDS)(rng)
    return job.document("math-shifted", answer)
