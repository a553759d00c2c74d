"""A random generator goes in, a word problem about things that can be counted comes out, its answer in a field."""

import random

from spectiny.corpus.reasoning import Problem, start

_GOODS = "notebook pen ruler mug scarf brush lamp torch puzzle ball kite basket cup cap plant poster".split()
_SHOPS = ("shop", "market", "store", "fair")
_MADE = "toys bottles chairs bricks lamps boxes bowls shirts bikes clocks".split()
_CROPS = "tulips carrots cabbages roses beans onions lettuces peppers berries leeks".split()


def collection(rng: random.Random) -> Problem:
    """Return a problem about a collection that grows and shrinks."""
    job = start(rng)
    has = rng.randint(8, 60)
    job.tell("<$p has $n $things|$p owns $n $things|there are $n $things in $p's <box|bag|drawer>>.", n=has)
    job.note("<|at the start, |first, |to begin with, >$p <has|starts with> $n $things.")
    events = rng.sample(("gain", "lose", "double", "bags", "lose", "gain"), rng.randint(2, 4))
    for event in events:
        if event == "double" and has <= 60:
            job.tell(
                "<then|after that,|a week later,> $p_they <doubles|manages to double> the <number|collection>."
            )
            has = job.work(has, "*", 2, "<doubling|twice that many> <means|makes> $c, <because|since> $sum.")
        elif event == "lose" and has > 8:
            gone = rng.randint(2, has - 4)
            job.tell(
                "<$p_they gives $m $things to $q|$p_they loses $m of them|$q borrows $m of them|$p_they sells $m of "
                "them <at the fair|to $r|>>.",
                m=gone,
            )
            has = job.work(
                has,
                "-",
                gone,
                "<|then |now |next, ><$b are gone, so|we take away $b:|we subtract $b, and> $sum.",
            )
        elif event == "bags":
            bags, each = rng.randint(2, 6), rng.randint(2, 9)
            job.tell(
                "$q <brings|gives $p> $k <bags|boxes|packs> with $m $things <each|in each>.", k=bags, m=each
            )
            more = job.work(bags, "*", each, "<the new ones are|$q brings> $c $things, <because|since> $sum.")
            has = job.work(has, "+", more, "<together that makes|now there are|so $p has> $c: $sum.")
        else:
            more = rng.randint(3, 40)
            job.tell(
                "<$q gives $p $m more|$p_they buys $m more <at the shop|>|$p_they finds $m more <in the yard|at home|>>"
                ".",
                m=more,
            )
            has = job.work(
                has, "+", more, "<|then |now |next, ><$b more come in, so|we add $b:|with $b more,> $sum."
            )
    job.tell("how many $things does $p have <now|in the end|left>?")
    job.fields["answer"] = has
    return job


def shopping(rng: random.Random) -> Problem:
    """Return a problem about a bill, and perhaps the change."""
    job = start(rng)
    good, other = rng.sample(_GOODS, 2)
    k, m, price, cost = rng.randint(2, 7), rng.randint(2, 7), rng.randint(2, 12), rng.randint(2, 12)
    job.fields.update(good=good, other=other, shop=rng.choice(_SHOPS))
    job.fields.update(goods=f"{good}s" if not good.endswith("sh") else f"{good}es")
    job.fields.update(others=f"{other}s" if not other.endswith("sh") else f"{other}es")
    job.tell(
        "<at the $shop, |>$p <buys|picks|gets> $k $goods and $m $others<| for $p_their class| for a party>.",
        k=k,
        m=m,
    )
    job.tell(
        "<each|one|every> $good costs $u dollars and <each|one|every> $other <costs|is> $v dollars.",
        u=price,
        v=cost,
    )
    one = job.work(k, "*", price, "the $goods cost <|us >$c dollars<, because|, since|:> $sum.")
    two = job.work(m, "*", cost, "<then |>the $others <cost|come to> $c dollars<, because|, since|:> $sum.")
    total = job.work(
        one, "+", two, "<in total that is|all together that makes|so the bill is> $c dollars: $sum."
    )
    if rng.random() < 0.4:
        job.tell("how <much does $p pay|many dollars does $p spend> <in total|all together>?")
        job.fields["answer"] = total
        return job
    paid = total + rng.randint(1, 30)
    job.tell("$p_they pays with $w dollars.", w=paid)
    job.tell("how <much change does $p get|many dollars does $p get back>?")
    job.fields["answer"] = job.work(
        paid, "-", total, "<the change is|$p gets back> <what is left of|the rest of> $a dollars: $sum."
    )
    return job


def sharing(rng: random.Random) -> Problem:
    """Return a problem about equal shares."""
    job = start(rng)
    children, each, bags = rng.randint(2, 9), rng.randint(2, 12), rng.randint(2, 8)
    total = children * each
    while total % bags or total // bags < 2:
        bags -= 1
    kept = rng.randint(0, 9) if bags == 1 else 0
    if bags == 1:
        job.tell("$p has $n $things <in a jar|in a bag|on the table|>.", n=total + kept)
        if kept:
            job.tell("$p_they <keeps|sets aside|puts away> $m of them.", m=kept)
            job.work(
                total + kept,
                "-",
                kept,
                "<after|once> $p <keeps|takes out> $b, <we have|there are> $c left: $sum.",
            )
        else:
            job.note("<all|every one> of the $n $things <are|can be> shared.")
    else:
        job.tell("$p has $k <bags|boxes|jars> with $m $things <each|in each>.", k=bags, m=total // bags)
        job.work(
            bags, "*", total // bags, "<in all|all together> $p has $c $things<, because|, since|:> $sum."
        )
    job.tell(
        "<the $things|they> are shared <equally|fairly> <between|among> $w <children|friends|cousins>.",
        w=children,
    )
    got = job.work(
        total,
        "/",
        children,
        "<each of the $b gets|one child gets|every share is> $c<, because|, since|:> $sum.",
    )
    if rng.random() < 0.5:
        own = rng.randint(2, 20)
        job.tell("$q is one of them and <already has|had> $v $things <before|at home>.", v=own)
        job.tell("how many $things does $q have <now|in the end>?")
        got = job.work(
            got, "+", own, "<$q had $b before, so|with the $b from before,|adding what $q had,> $sum."
        )
    else:
        job.tell("how many <$things |>does each of them <get|receive>?")
    job.fields["answer"] = got
    return job


def factory(rng: random.Random) -> Problem:
    """Return a problem about goods made, sorted and packed."""
    job = start(rng)
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
    made = job.work(
        rate, "*", hours, "<in $b hours|all together|in that time> we get $c $made<, because|:> $sum."
    )
    job.tell("$b of <them|the $made> are <broken|bad|faulty> and <thrown away|taken out>.", b=bad)
    good = job.work(
        made, "-", bad, "<without|not counting> the <bad|broken> ones there are $c<, because|:> $sum."
    )
    if boxes and rng.random() < 0.7:
        job.tell("the <rest|others|good ones> are packed <in|into> boxes of $k.", k=size)
        job.tell("how many <full |>boxes are <there|filled>?")
        good = job.work(good, "/", size, "<each box holds $b, so|with $b in a box,> $sum.")
    else:
        job.tell("how many <good $made|$made> are left?")
    job.fields["answer"] = good
    return job


def garden(rng: random.Random) -> Problem:
    """Return a problem about rows of plants."""
    job = start(rng)
    rows, each, gone, more = rng.randint(3, 12), rng.randint(3, 12), rng.randint(2, 8), rng.randint(2, 30)
    job.fields["crops"] = rng.choice(_CROPS)
    job.tell("$p <plants|grows> $k rows of $crops with $m in <each|every> row.", k=rows, m=each)
    has = job.work(rows, "*", each, "$k rows of $m <make|are> $c $crops<, because|, since|:> $sum.")
    job.tell("<rabbits eat|$p_they picks|the frost kills|$p_they sells> $g of them.", g=gone)
    has = job.work(
        has, "-", gone, "<after losing|without> the $b <that are gone|>, <there are $c|$c are left>: $sum."
    )
    if rng.random() < 0.6:
        job.tell("<later|then|next week> $p_they plants $w more.", w=more)
        has = job.work(
            has, "+", more, "<with|adding> the $b <new ones|planted later>, <it is|there are> $c: $sum."
        )
    job.tell("how many $crops are <there now|in the garden|left>?")
    job.fields["answer"] = has
    return job


def baking(rng: random.Random) -> Problem:
    """Return a problem about ingredients."""
    job = start(rng)
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
            answer = job.work(
                need, "/", 2, "<a pack has 2 eggs|each pack holds 2>, so <it takes|$p needs> $c packs: $sum."
            )
        else:
            broken = rng.randint(2, 9)
            job.tell("$w eggs <fall down and break|are broken> <on the way|>.", w=broken)
            job.tell("how many eggs must $p buy <in all|>?")
            answer = job.work(need, "+", broken, "<$b are lost, so|adding the $b broken ones,> $sum.")
    job.fields["answer"] = answer
    return job
