"""A random generator goes in, a word problem with worked steps comes out."""

import random
from collections.abc import Callable

from spectiny.corpus.people import people
from spectiny.corpus.phrasing import sentence
from spectiny.corpus.reasoning import Problem
from spectiny.document import Document

_THINGS = (
    "apples marbles stickers pencils shells books coins cards stamps buttons beads plums cookies photos badges "
    "feathers keys candles ribbons acorns"
).split()
_GOODS = "notebook pen ruler mug scarf brush lamp torch puzzle ball kite basket cup cap plant poster".split()
_SHOPS = ("shop", "market", "store", "fair")
_MADE = "toys bottles chairs bricks lamps boxes bowls shirts bikes clocks".split()
_CROPS = "tulips carrots cabbages roses beans onions lettuces peppers berries leeks".split()


def _start(rng: random.Random, count: int = 3) -> Problem:
    fields: dict[str, object] = {}
    for key, person in zip(("p", "q", "r"), people(rng, count), strict=False):
        fields.update({key: person.name, f"{key}_they": person.they, f"{key}_their": person.their})
    fields["things"] = rng.choice(_THINGS)
    return Problem(rng, fields)


def _collection(rng: random.Random) -> Problem:
    job = _start(rng)
    has = rng.randint(8, 60)
    job.tell("<$p has $n $things|$p owns $n $things|there are $n $things in $p's <box|bag|drawer>>.", n=has)
    job.note("<|at the start, |first, |to begin with, >$p <has|starts with> $n $things.")
    events = rng.sample(("gain", "lose", "double", "bags", "lose", "gain"), rng.randint(2, 4))
    for event in events:
        if event == "double" and has <= 60:
            job.tell("<then|after that,|a week later,> $p_they <doubles|manages to double> the <number|collection>.")
            has = job.work(has, "*", 2, "<doubling|twice that many> <means|makes> $c, <because|since> $sum.")
        elif event == "lose" and has > 8:
            gone = rng.randint(2, has - 4)
            job.tell(
                "<$p_they gives $m $things to $q|$p_they loses $m of them|$q borrows $m of them|$p_they sells $m of "
                "them <at the fair|to $r|>>.",
                m=gone,
            )
            has = job.work(
                has, "-", gone, "<|then |now |next, ><$b are gone, so|we take away $b:|we subtract $b, and> $sum."
            )
        elif event == "bags":
            bags, each = rng.randint(2, 6), rng.randint(2, 9)
            job.tell("$q <brings|gives $p> $k <bags|boxes|packs> with $m $things <each|in each>.", k=bags, m=each)
            more = job.work(bags, "*", each, "<the new ones are|$q brings> $c $things, <because|since> $sum.")
            has = job.work(has, "+", more, "<together that makes|now there are|so $p has> $c: $sum.")
        else:
            more = rng.randint(3, 40)
            job.tell(
                "<$q gives $p $m more|$p_they buys $m more <at the shop|>|$p_they finds $m more <in the yard|at home|>>"
                ".",
                m=more,
            )
            has = job.work(has, "+", more, "<|then |now |next, ><$b more come in, so|we add $b:|with $b more,> $sum.")
    job.tell("how many $things does $p have <now|in the end|left>?")
    job.fields["answer"] = has
    return job


def _shopping(rng: random.Random) -> Problem:
    job = _start(rng)
    good, other = rng.sample(_GOODS, 2)
    k, m, price, cost = rng.randint(2, 7), rng.randint(2, 7), rng.randint(2, 12), rng.randint(2, 12)
    job.fields.update(good=good, other=other, shop=rng.choice(_SHOPS))
    job.fields.update(goods=f"{good}s" if not good.endswith("sh") else f"{good}es")
    job.fields.update(others=f"{other}s" if not other.endswith("sh") else f"{other}es")
    job.tell(
        "<at the $shop, |>$p <buys|picks|gets> $k $goods and $m $others<| for $p_their class| for a party>.", k=k, m=m
    )
    job.tell(
        "<each|one|every> $good costs $u dollars and <each|one|every> $other <costs|is> $v dollars.", u=price, v=cost
    )
    one = job.work(k, "*", price, "the $goods cost <|us >$c dollars<, because|, since|:> $sum.")
    two = job.work(m, "*", cost, "<then |>the $others <cost|come to> $c dollars<, because|, since|:> $sum.")
    total = job.work(one, "+", two, "<in total that is|all together that makes|so the bill is> $c dollars: $sum.")
    if rng.random() < 0.4:
        job.tell("how <much does $p pay|many dollars does $p spend> <in total|all together>?")
        job.fields["answer"] = total
        return job
    paid = total + rng.randint(1, 30)
    job.tell("$p_they pays with $w dollars.", w=paid)
    job.tell("how <much change does $p get|many dollars does $p get back>?")
    job.fields["answer"] = job.work(paid, "-", total, "<the change is|$p gets back> <what is left of|the rest of> $a dollars: $sum.")
    return job


def _sharing(rng: random.Random) -> Problem:
    job = _start(rng)
    children, each, bags = rng.randint(2, 9), rng.randint(2, 12), rng.randint(2, 8)
    total = children * each
    while total % bags or total // bags < 2:
        bags -= 1
    kept = rng.randint(0, 9) if bags == 1 else 0
    if bags == 1:
        job.tell("$p has $n $things <in a jar|in a bag|on the table|>.", n=total + kept)
        if kept:
            job.tell("$p_they <keeps|sets aside|puts away> $m of them.", m=kept)
            job.work(total + kept, "-", kept, "<after|once> $p <keeps|takes out> $b, <we have|there are> $c left: $sum.")
        else:
            job.note("<all|every one> of the $n $things <are|can be> shared.")
    else:
        job.tell("$p has $k <bags|boxes|jars> with $m $things <each|in each>.", k=bags, m=total // bags)
        job.work(bags, "*", total // bags, "<in all|all together> $p has $c $things<, because|, since|:> $sum.")
    job.tell("<the $things|they> are shared <equally|fairly> <between|among> $w <children|friends|cousins>.", w=children)
    got = job.work(total, "/", children, "<each of the $b gets|one child gets|every share is> $c<, because|, since|:> $sum.")
    if rng.random() < 0.5:
        own = rng.randint(2, 20)
        job.tell("$q is one of them and <already has|had> $v $things <before|at home>.", v=own)
        job.tell("how many $things does $q have <now|in the end>?")
        got = job.work(got, "+", own, "<$q had $b before, so|with the $b from before,|adding what $q had,> $sum.")
    else:
        job.tell("how many <$things |>does each of them <get|receive>?")
    job.fields["answer"] = got
    return job


def _distance(rng: random.Random) -> Problem:
    job = _start(rng)
    legs = [(rng.choice((3, 4, 5, 6, 10, 12, 15, 20, 30)), rng.randint(2, 5)) for _ in range(2)]
    move = rng.choice(("rides", "walks", "drives", "sails", "travels"))
    unit = rng.choice(("km", "miles"))
    job.fields.update(move=move, unit=unit)
    (speed, hours), (fast, more) = legs
    job.tell("$p $move for $h hours at $s $unit per hour.", h=hours, s=speed)
    job.tell("<then|after a break|in the afternoon> $p_they goes on for $g hours at $f $unit per hour.", g=more, f=fast)
    one = job.work(speed, "*", hours, "<the first part is|in the first $h hours $p covers> $c $unit<, because|:> $sum.")
    two = job.work(fast, "*", more, "<the second part is|then $p covers|after that come> $c $unit<, because|:> $sum.")
    far = job.work(one, "+", two, "<together|in all|the whole way> that is $c $unit: $sum.")
    if rng.random() < 0.5:
        left = rng.randint(3, 50)
        job.tell("the whole <trip|way|road> is $w $unit <long|>.", w=far + left)
        job.tell("how many $unit are <left|still to go>?")
        far = job.work(far + left, "-", far, "<of the $a $unit, what is left is|the rest of the way is> $c: $sum.")
    else:
        job.tell("how <far does $p go|many $unit does $p cover> <in total|all together>?")
    job.fields["answer"] = far
    return job


def _ages(rng: random.Random) -> Problem:
    job = _start(rng)
    young, gap = rng.randint(3, 20), rng.randint(2, 15)
    job.tell("$p is $n years old.", n=young)
    if rng.random() < 0.5:
        times = rng.randint(2, 4)
        job.tell("$q is $word as old as $p.", word={2: "twice", 3: "three times", 4: "four times"}[times])
        second = job.work(young, "*", times, "$q is <$word as old|$word that>, so $q is $c<, because|:> $sum.")
    else:
        job.tell("$q is $g years older than $p.", g=gap)
        second = job.work(young, "+", gap, "$q is <$b years older|older by $b>, so $q is $c<, because|:> $sum.")
    less = rng.randint(2, second - 1)
    job.tell("$r is $d years younger than $q.", d=less)
    third = job.work(second, "-", less, "$r is <$b years younger|younger by $b>, so $r is $c<, because|:> $sum.")
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


def _factory(rng: random.Random) -> Problem:
    job = _start(rng)
    size, boxes = rng.randint(2, 9), rng.randint(2, 12)
    rate, hours = rng.randint(4, 20), rng.randint(2, 8)
    job.fields["made"] = rng.choice(_MADE)
    total = rate * hours
    bad = total % size or size
    if bad == 1:
        bad += size
    boxes = (total - bad) // size
    job.tell("<a machine|a workshop|$p> makes $n $made <per|every|an> hour.", n=rate)
    job.tell("<it runs|the work goes on> for $h hours<| on Monday| today>.", h=hours)
    made = job.work(rate, "*", hours, "<in $b hours|all together|in that time> we get $c $made<, because|:> $sum.")
    job.tell("$b of <them|the $made> are <broken|bad|faulty> and <thrown away|taken out>.", b=bad)
    good = job.work(made, "-", bad, "<without|not counting> the <bad|broken> ones there are $c<, because|:> $sum.")
    if boxes and rng.random() < 0.7:
        job.tell("the <rest|others|good ones> are packed <in|into> boxes of $k.", k=size)
        job.tell("how many <full |>boxes are <there|filled>?")
        good = job.work(good, "/", size, "<each box holds $b, so|with $b in a box,> $sum.")
    else:
        job.tell("how many <good $made|$made> are left?")
    job.fields["answer"] = good
    return job


def _reading(rng: random.Random) -> Problem:
    job = _start(rng)
    rate, days, pace, left = rng.randint(5, 20), rng.randint(2, 6), rng.randint(4, 15), rng.randint(2, 6)
    total = rate * days + pace * left
    job.tell("$p <reads|has> a book with $n pages<| from the library| from $q>.", n=total)
    job.tell("<for $d days|in the first $d days> $p_they reads $k pages <a day|each day|every day>.", d=days, k=rate)
    read = job.work(rate, "*", days, "<in $b days|first> $p reads $c pages<, because|:> $sum.")
    rest = job.work(total, "-", read, "<then $c pages are left|that leaves $c pages|there are $c pages to go>: $sum.")
    if rng.random() < 0.6:
        job.tell("<then|after that> $p_they reads $m pages <a day|each day|every day>.", m=pace)
        job.tell("how many more days does $p need?")
        rest = job.work(rest, "/", pace, "<at $b pages a day|reading $b each day>, <it takes|$p needs> $c days: $sum.")
    else:
        job.tell("how many pages are left <to read|>?")
    job.fields["answer"] = rest
    return job


def _garden(rng: random.Random) -> Problem:
    job = _start(rng)
    rows, each, gone, more = rng.randint(3, 12), rng.randint(3, 12), rng.randint(2, 8), rng.randint(2, 30)
    job.fields["crops"] = rng.choice(_CROPS)
    job.tell("$p <plants|grows> $k rows of $crops with $m in <each|every> row.", k=rows, m=each)
    has = job.work(rows, "*", each, "$k rows of $m <make|are> $c $crops<, because|, since|:> $sum.")
    job.tell("<rabbits eat|$p_they picks|the frost kills|$p_they sells> $g of them.", g=gone)
    has = job.work(has, "-", gone, "<after losing|without> the $b <that are gone|>, <there are $c|$c are left>: $sum.")
    if rng.random() < 0.6:
        job.tell("<later|then|next week> $p_they plants $w more.", w=more)
        has = job.work(has, "+", more, "<with|adding> the $b <new ones|planted later>, <it is|there are> $c: $sum.")
    job.tell("how many $crops are <there now|in the garden|left>?")
    job.fields["answer"] = has
    return job


def _savings(rng: random.Random) -> Problem:
    job = _start(rng)
    weekly, weeks, first = rng.randint(3, 15), rng.randint(3, 9), rng.randint(4, 50)
    job.tell("$p has $n dollars and <saves|puts aside|earns> $k dollars <a|every|each> week.", n=first, k=weekly)
    job.tell("<$p_they does this for|this goes on for> $w weeks.", w=weeks)
    saved = job.work(weekly, "*", weeks, "<in $b weeks|over $b weeks> $p <saves|puts aside> $c dollars<, because|:> $sum.")
    total = job.work(first, "+", saved, "<with the first $a dollars|adding the $a from before> <it is|we get> $c: $sum.")
    spent = rng.randint(3, total - 2)
    job.tell("<then|after that,> $p_they <spends $g dollars on a $good|pays $g dollars for a $good>.", g=spent, good=rng.choice(_GOODS))
    job.tell("how many dollars does $p have <left|now>?")
    job.fields["answer"] = job.work(total, "-", spent, "<after paying|once we take away> $b, <$p has $c|$c is left>: $sum.")
    return job


def _bus(rng: random.Random) -> Problem:
    job = _start(rng)
    job.fields["bus"] = rng.choice(("bus", "train", "ferry", "tram"))
    on = rng.randint(8, 60)
    job.tell("<a|the> $bus <leaves|starts> with $n <people|passengers>.", n=on)
    job.note("<at the start|at first> there are $n <people|passengers> on the $bus.")
    for place in rng.sample(("the school", "the bridge", "the park", "the mill", "the town hall"), rng.randint(1, 2)):
        off, more = rng.randint(2, on - 2), rng.randint(2, 25)
        job.fields["place"] = place
        job.tell("at $place, $m <people|passengers> get off and $k get on.", m=off, k=more)
        on = job.work(on, "-", off, "at $place <$b leave|$b get off>, so $sum.")
        on = job.work(on, "+", more, "<then|next> <$b get on|$b come in>, so $sum.")
    job.tell("how many <people|passengers> are on the $bus <now|after that|in the end>?")
    job.fields["answer"] = on
    return job


def _baking(rng: random.Random) -> Problem:
    job = _start(rng)
    cakes, cups, eggs = rng.randint(2, 9), rng.randint(2, 6), rng.randint(2, 5)
    job.fields["cake"] = rng.choice(("cake", "pie", "loaf", "tart"))
    job.fields["cakes"] = {"loaf": "loaves"}.get(str(job.fields["cake"]), f"{job.fields['cake']}s")
    job.tell("<a|one|each> $cake needs $m cups of flour and $e eggs.", m=cups, e=eggs)
    job.tell("$p <wants to bake|bakes|makes> $k $cakes<| for $q| for the school>.", k=cakes)
    if rng.random() < 0.5:
        have = rng.randint(1, cups * cakes - 1)
        job.tell("$p_they <has|finds> <only |>$h cups of flour.", h=have)
        job.tell("how many <more cups|cups more> does $p need?")
        need = job.work(cakes, "*", cups, "$k $cakes need $c cups<, because|, since|:> $sum.")
        answer = job.work(need, "-", have, "$p has $b <already|>, so <$p_they needs|that leaves> $c: $sum.")
    else:
        per = eggs
        packs = 2 if (cakes * per) % 2 == 0 else 1
        need = job.work(cakes, "*", per, "$k $cakes need $c eggs<, because|, since|:> $sum.")
        if packs == 2:
            job.tell("eggs come in packs of <two|2>.")
            job.tell("how many packs does $p need?")
            answer = job.work(need, "/", 2, "<a pack has 2 eggs|each pack holds 2>, so <it takes|$p needs> $c packs: $sum.")
        else:
            broken = rng.randint(2, 9)
            job.tell("$w eggs <fall down and break|are broken> <on the way|>.", w=broken)
            job.tell("how many eggs must $p buy <in all|>?")
            answer = job.work(need, "+", broken, "<$b are lost, so|adding the $b broken ones,> $sum.")
    job.fields["answer"] = answer
    return job


def _compare(rng: random.Random) -> Problem:
    job = _start(rng)
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


_KINDS: tuple[Callable[[random.Random], Problem], ...] = (
    _collection, _collection, _shopping, _sharing, _distance, _ages, _factory, _reading, _garden, _savings, _bus,
    _baking, _compare,
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
