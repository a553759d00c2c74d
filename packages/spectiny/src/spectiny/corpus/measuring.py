"""A random generator goes in, a word problem about time, ways, ages and money comes out, its answer in a field."""

import random

from spectiny.corpus.reasoning import Problem, start

_PRESENTS = (
    "notebook pen ruler mug scarf brush lamp torch puzzle ball kite basket cup cap plant poster".split()
)


def distance(rng: random.Random) -> Problem:
    """Return a problem about a trip of two legs."""
    job = start(rng)
    legs = [(rng.choice((3, 4, 5, 6, 10, 12, 15, 20, 30)), rng.randint(2, 5)) for _ in range(2)]
    move = rng.choice(("rides", "walks", "drives", "sails", "travels"))
    unit = rng.choice(("km", "miles"))
    job.fields.update(move=move, unit=unit)
    (speed, hours), (fast, more) = legs
    job.tell("$p $move for $h hours at $s $unit per hour.", h=hours, s=speed)
    job.tell(
        "<then|after a break|in the afternoon> $p_they goes on for $g hours at $f $unit per hour.",
        g=more,
        f=fast,
    )
    one = job.work(
        speed, "*", hours, "<the first part is|in the first $h hours $p covers> $c $unit<, because|:> $sum."
    )
    two = job.work(
        fast, "*", more, "<the second part is|then $p covers|after that come> $c $unit<, because|:> $sum."
    )
    far = job.work(one, "+", two, "<together|in all|the whole way> that is $c $unit: $sum.")
    if rng.random() < 0.5:
        left = rng.randint(3, 50)
        job.tell("the whole <trip|way|road> is $w $unit <long|>.", w=far + left)
        job.tell("how many $unit are <left|still to go>?")
        far = job.work(
            far + left, "-", far, "<of the $a $unit, what is left is|the rest of the way is> $c: $sum."
        )
    else:
        job.tell("how <far does $p go|many $unit does $p cover> <in total|all together>?")
    job.fields["answer"] = far
    return job


def ages(rng: random.Random) -> Problem:
    """Return a problem about three ages."""
    job = start(rng)
    young, gap = rng.randint(3, 20), rng.randint(2, 15)
    job.tell("$p is $n years old.", n=young)
    if rng.random() < 0.5:
        times = rng.randint(2, 4)
        job.tell("$q is $word as old as $p.", word={2: "twice", 3: "three times", 4: "four times"}[times])
        second = job.work(
            young, "*", times, "$q is <$word as old|$word that>, so $q is $c<, because|:> $sum."
        )
    else:
        job.tell("$q is $g years older than $p.", g=gap)
        second = job.work(
            young, "+", gap, "$q is <$b years older|older by $b>, so $q is $c<, because|:> $sum."
        )
    less = rng.randint(2, second - 1)
    job.tell("$r is $d years younger than $q.", d=less)
    third = job.work(
        second, "-", less, "$r is <$b years younger|younger by $b>, so $r is $c<, because|:> $sum."
    )
    ask = rng.randrange(3)
    if ask == 0:
        later = rng.randint(2, 12)
        job.tell("how old will $r be in $y years?", y=later)
        third = job.work(third, "+", later, "<in $b years|after $b years> $r <will be|is> $c: $sum.")
    elif ask == 1:
        job.tell("<how old are $q and $r together|what is the sum of the ages of $q and $r>?")
        third = job.work(second, "+", third, "<together they are|the sum of both ages is> $c: $sum.")
    else:
        job.tell("how old are <all three|the three of them> together?")
        pair = job.work(young, "+", second, "<$p and $q together are|the first two make> $c: $sum.")
        third = job.work(pair, "+", third, "<with $r it is|adding $r makes> $c: $sum.")
    job.fields["answer"] = third
    return job


def reading(rng: random.Random) -> Problem:
    """Return a problem about the pages of a book."""
    job = start(rng)
    rate, days, pace, left = rng.randint(5, 20), rng.randint(2, 6), rng.randint(4, 15), rng.randint(2, 6)
    total = rate * days + pace * left
    job.tell("$p <reads|has> a book with $n pages<| from the library| from $q>.", n=total)
    job.tell(
        "<for $d days|in the first $d days> $p_they reads $k pages <a day|each day|every day>.",
        d=days,
        k=rate,
    )
    read = job.work(rate, "*", days, "<in $b days|first> $p reads $c pages<, because|:> $sum.")
    rest = job.work(
        total, "-", read, "<then $c pages are left|that leaves $c pages|there are $c pages to go>: $sum."
    )
    if rng.random() < 0.6:
        job.tell("<then|after that> $p_they reads $m pages <a day|each day|every day>.", m=pace)
        job.tell("how many more days does $p need?")
        rest = job.work(
            rest, "/", pace, "<at $b pages a day|reading $b each day>, <it takes|$p needs> $c days: $sum."
        )
    else:
        job.tell("how many pages are left <to read|>?")
    job.fields["answer"] = rest
    return job


def savings(rng: random.Random) -> Problem:
    """Return a problem about money saved and spent."""
    job = start(rng)
    weekly, weeks, first = rng.randint(3, 15), rng.randint(3, 9), rng.randint(4, 50)
    job.tell(
        "$p has $n dollars and <saves|puts aside|earns> $k dollars <a|every|each> week.", n=first, k=weekly
    )
    job.tell("<$p_they does this for|this goes on for> $w weeks.", w=weeks)
    saved = job.work(
        weekly, "*", weeks, "<in $b weeks|over $b weeks> $p <saves|puts aside> $c dollars<, because|:> $sum."
    )
    total = job.work(
        first, "+", saved, "<with the first $a dollars|adding the $a from before> <it is|we get> $c: $sum."
    )
    spent = rng.randint(3, total - 2)
    job.tell(
        "<then|after that,> $p_they <spends $g dollars on a $good|pays $g dollars for a $good>.",
        g=spent,
        good=rng.choice(_PRESENTS),
    )
    job.tell("how many dollars does $p have <left|now>?")
    job.fields["answer"] = job.work(
        total, "-", spent, "<after paying|once we take away> $b, <$p has $c|$c is left>: $sum."
    )
    return job


def bus(rng: random.Random) -> Problem:
    """Return a problem about passengers that come and go."""
    job = start(rng)
    job.fields["bus"] = rng.choice(("bus", "train", "ferry", "tram"))
    on = rng.randint(8, 60)
    job.tell("<a|the> $bus <leaves|starts> with $n <people|passengers>.", n=on)
    job.note("<at the start|at first> there are $n <people|passengers> on the $bus.")
    for place in rng.sample(
        ("the school", "the bridge", "the park", "the mill", "the town hall"), rng.randint(1, 2)
    ):
        off, more = rng.randint(2, on - 2), rng.randint(2, 25)
        job.fields["place"] = place
        job.tell("at $place, $m <people|passengers> get off and $k get on.", m=off, k=more)
        on = job.work(on, "-", off, "at $place <$b leave|$b get off>, so $sum.")
        on = job.work(on, "+", more, "<then|next> <$b get on|$b come in>, so $sum.")
    job.tell("how many <people|passengers> are on the $bus <now|after that|in the end>?")
    job.fields["answer"] = on
    return job


def compare(rng: random.Random) -> Problem:
    """Return a problem about three amounts told by comparison."""
    job = start(rng)
    first, times = rng.randint(4, 30), rng.randint(2, 3)
    word = {2: "twice", 3: "three times"}[times]
    job.tell("$p has $n $things.", n=first)
    job.tell("$q has $word as many <|$things >as $p.", word=word)
    second = job.work(first, "*", times, "$q has $word as many, <so $q has|which is> $c<, because|:> $sum.")
    gap = rng.randint(2, second - 2)
    if rng.random() < 0.5:
        job.tell("$r has $g fewer than $q.", g=gap)
        third = job.work(second, "-", gap, "$r has $b fewer, <so $r has|which is> $c<, because|:> $sum.")
    else:
        job.tell("$r has $g more than $q.", g=gap)
        third = job.work(second, "+", gap, "$r has $b more, <so $r has|which is> $c<, because|:> $sum.")
    if rng.random() < 0.4:
        job.tell("how many $things does $r have?")
    else:
        job.tell("how many $things do <they|the three> have <together|in total|all together>?")
        pair = job.work(first, "+", second, "$p and $q together have $c: $sum.")
        third = job.work(pair, "+", third, "<with $r it is|adding those of $r makes> $c: $sum.")
    job.fields["answer"] = third
    return job
