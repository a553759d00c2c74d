"""Count generations that differ from plain decoding, over everything that a request and an engine can be set to.

`python tools/bench/properties.py --generations 10000 --dtype float64 --record FILE`: every case draws a small random
target, a drafter of some layout, or one that a script makes right as often as the case wants, a method, sizes, a length
policy, a batch size, and requests with lengths, laws, penalties, seeds, stop ids and stop texts of their own; some cases
are conversations that keep their cache rows. Ids, text, counters and the reason of the end have to be those of plain
decoding, and every twentieth request also those of the definition, without cache, law or hash of ours.

In float64 nothing may differ. In float32 a difference is a tie where the token had won by less than 1e-5. The record
grows by pieces: the same command goes on where the last one stopped, after `--minutes` if that is given.
"""

import argparse
import json
import random
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from speccorrect.policy import length_policy, policy_specs
from specmodels import Qwen3
from specmodels.dflash import LayerKind
from specrun import DraftOptions, Engine, Generation, Sampling, method
from specrun.compare import parting
from spectrain.record import commit, source_hash

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from doubles.drafters import mixed, oracle, right_for, wrong  # noqa: E402 - the path above is theirs
from doubles.engines import ALL_METHODS, engine_for, scripted_engine, small_drafter, small_target  # noqa: E402
from doubles.pieces import PIECES  # noqa: E402
from reference.plain import continuation, cut  # noqa: E402

Request = tuple[list[int], Sampling]
Made = tuple[list[int], Sampling, Generation, Generation]  # prompt, settings, plain answer, the method's

TIE = 1e-5
EVERY = 20  # requests, of which one is held against the definition
DTYPES = {"float64": torch.float64, "float32": torch.float32}
LAYOUTS = {
    "fill-in": {"block_size": 6},
    "shifted": {"shifted": True, "block_size": 5},
    "windows": {
        "layers": (LayerKind(window=4, causal=True), LayerKind(window=None, causal=False)),
        "block_size": 4,
    },
}
RULES = {"oracle": oracle, "wrong": wrong, "mixed": mixed, "right for 2": right_for(2)}
POLICIES = [name for name in policy_specs() if name != "adaflash" and not length_policy(name).priced]


@cache
def target(seed: int, dtype: str) -> Qwen3:
    """One of a few random targets; the second has one layer more and ties its head."""
    more = {"num_layers": 3, "tie_embeddings": True} if seed == 1 else {}
    return small_target(dtype=DTYPES[dtype], seed=seed, **more)


@cache
def plain_engine(seed: int, dtype: str) -> Engine:
    """Plain decoding over that target."""
    return engine_for("ar", target(seed, dtype), tokenizer=PIECES)


def sampling(rng: random.Random) -> Sampling:
    """Settings of one request: every part of the law by itself and together with others."""
    law = {}
    if rng.random() < 0.65:
        law = {"temperature": rng.choice((0.3, 0.7, 1.0, 1.5))}
        law |= {"top_p": rng.choice((0.5, 0.9))} if rng.random() < 0.3 else {}
        law |= {"top_k": rng.choice((1, 3, 12))} if rng.random() < 0.3 else {}
        law |= {"min_p": rng.choice((0.02, 0.2))} if rng.random() < 0.2 else {}
    law |= {"repetition_penalty": rng.choice((0.8, 1.3))} if rng.random() < 0.2 else {}
    law |= {"presence_penalty": rng.choice((-0.4, 0.7))} if rng.random() < 0.2 else {}
    law |= {"frequency_penalty": rng.choice((0.4, 2.0))} if rng.random() < 0.2 else {}
    stops = tuple(rng.choices(range(31), k=rng.randrange(1, 4))) if rng.random() < 0.4 else ()
    texts = tuple(rng.choices(("st", "stop", "the ", "ab", "op the", "a", "n m"), k=rng.randrange(1, 3)))
    return Sampling(
        max_new_tokens=rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 17, 24)),
        seed=rng.choice((0, 1, -5, 2**40 + 3)),
        stop_ids=stops,
        stop=texts if rng.random() < 0.3 else (),
        **law,
    )


def prompt(rng: random.Random) -> list[int]:
    """Ids of a prompt, a few of them longer than a span of the cache."""
    length = rng.choice((1, 2, 3, 7, 15, 30)) if rng.random() < 0.95 else rng.choice((63, 64, 65, 100))
    return rng.choices(range(31), k=length)


def options(rng: random.Random, name: str, block: int) -> DraftOptions:
    """Sizes and a policy that the method knows."""
    growth = method(name).growth
    if growth == "plain":
        return DraftOptions()
    size = rng.choice((None, *range(2, block + 1)))
    budget = rng.choice((0, 1, 4, 9, 17, 40)) if growth == "tree" else None
    couple = rng.choice((None, 0.0, 0.7)) if growth == "tree" else None
    policy = rng.choice(POLICIES) if rng.random() < 0.25 else None
    return DraftOptions(block_size=size, tree_budget=budget, couple=couple, policy=policy)


def last(plain: Engine, request: Request, number: int, *, spare: int = 0) -> Generation:
    """Plain decoding's answer; with `spare` a longer one that nothing stops."""
    ids, law = request
    if spare:
        law = replace(law, max_new_tokens=law.max_new_tokens + spare, stop_ids=(), stop=())
    *_, piece = plain.stream(ids, law, number=number)
    assert piece.generation is not None, "the last piece carries it"
    return piece.generation


def drafting_engine(rng: random.Random, name: str, plain: Engine, requests: list[Request]) -> Engine:
    """An engine of the method, whose drafts are its own or dictated."""
    layout = LAYOUTS[rng.choice(list(LAYOUTS))]
    drafter = small_drafter(plain.parts.target, **layout)
    chosen = options(rng, name, layout["block_size"])
    if name in {"dflash", "ddtree"} and rng.random() < 0.7:
        rule = RULES[rng.choice(list(RULES))]
        scripts = [
            request[0] + last(plain, request, number, spare=8).token_ids
            for number, request in enumerate(requests)
        ]
        growth = method(name).growth
        return scripted_engine(
            growth, plain.parts.target, rule, scripts, drafter, options=chosen, tokenizer=PIECES
        )
    return engine_for(name, plain.parts.target, drafter, options=chosen, tokenizer=PIECES)


def outcome(generation: Generation) -> tuple[list[int], str, str, int]:
    """All that has to be equal."""
    return generation.token_ids, generation.text, generation.finish, generation.stats.tokens


def conversation(rng: random.Random, drafting: Engine, plain: Engine, requests: list[Request]) -> list[Made]:
    """Turns that begin like the ones before them, a few of them cut short before they go on."""
    history: list[int] = []
    made = []
    for number, (ids, law) in enumerate(requests):
        start = rng.randrange(len(history) + 1) if rng.random() < 0.2 else len(history)
        turn = [*history[:start], *ids][-150:]
        expected = last(plain, (turn, law), number)
        *_, piece = drafting.stream(turn, law, number=number, reuse=True)
        assert piece.generation is not None, "the last piece carries it"
        made.append((turn, law, expected, piece.generation))
        history = [*turn, *expected.token_ids]
    return made


def batch(rng: random.Random, drafting: Engine, plain: Engine, requests: list[Request]) -> list[Made]:
    """Rows that advance independently, fewer than there are requests."""
    prompts, laws = zip(*requests, strict=True)
    expected = [last(plain, request, number) for number, request in enumerate(requests)]
    got = drafting.generate_batch(prompts, laws, batch_size=rng.randrange(1, len(requests) + 1))
    return [(*request, *pair) for request, *pair in zip(requests, expected, got, strict=True)]


def agrees_with_the_definition(target: Qwen3, one: Made, number: int) -> bool:
    """Whether plain decoding is what it is defined to be, for as long as its answer goes."""
    ids, law, expected, _ = one
    length = len(expected.token_ids)
    defined = continuation(target, ids, law, request=number, length=max(1, length)).tokens
    stopped = bool(law.stop) or cut(defined, length, law.stop_ids or ())[0] == expected.token_ids
    return stopped and defined[:length] == expected.token_ids


def case(number: int, dtype: str, record: dict[str, Any]) -> None:
    """Run one case and count."""
    rng = random.Random(f"case {number}")
    seed, name = rng.randrange(3), rng.choice(ALL_METHODS)
    plain = plain_engine(seed, dtype)
    requests = [(prompt(rng), sampling(rng)) for _ in range(rng.randrange(1, 7))]
    drafting = drafting_engine(rng, name, plain, requests)
    made = (conversation if rng.random() < 0.2 else batch)(rng, drafting, plain, requests)
    for place, one in enumerate(made):
        ids, law, expected, got = one
        record["generations"] += 1
        record["methods"][name] = record["methods"].get(name, 0) + 1
        record["tokens"] += len(got.token_ids)
        record["rounds"] += got.stats.rounds
        if record["generations"] % EVERY == 0 and dtype == "float64":
            record["by the definition"] += 1
            if not agrees_with_the_definition(plain.parts.target, one, place):
                record["differences"].append({"case": number, "request": place, "from": "the definition"})
        if outcome(got) != outcome(expected):
            found = parting(plain, ids, expected.token_ids, got.token_ids, law, number=place)
            margin = None if found is None else found.margin
            if dtype == "float32" and margin is not None and margin < TIE:
                record["ties"].append(margin)
            else:
                record["differences"].append({"case": number, "request": place, "margin": margin})


def main() -> int:
    """Run cases until there are enough generations or no more time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--generations", type=int, default=10_000)
    parser.add_argument("--dtype", choices=DTYPES, default="float64")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--record", type=Path, help="a JSON file that grows with every call")
    parser.add_argument("--case", type=int, help="run this case alone, to look into it")
    given = parser.parse_args()
    torch.set_num_threads(1)
    record = {"dtype": given.dtype, "torch": torch.__version__, "commits": [], "sources": [], "seconds": 0.0}
    record |= {"cases": 0, "generations": 0, "tokens": 0, "rounds": 0, "by the definition": 0}
    record |= {"ties": [], "differences": [], "methods": {}}
    if given.case is not None:
        case(given.case, given.dtype, record)
        print(json.dumps(record, indent=1))
        return 1 if record["differences"] else 0
    if given.record is not None and given.record.is_file():
        record = json.loads(given.record.read_text())
        assert record["dtype"] == given.dtype, "the record is of another dtype"
    for key, now in (("commits", commit()), ("sources", source_hash(sorted(ROOT.glob("packages/*/src"))))):
        record[key] = [*(one for one in record[key] if one != now), now]
    started = time.perf_counter()
    spent = record["seconds"]
    while record["generations"] < given.generations and time.perf_counter() - started < 60 * given.minutes:
        case(record["cases"], given.dtype, record)
        record["cases"] += 1
    record["seconds"] = round(spent + time.perf_counter() - started, 1)
    if given.record is not None:
        given.record.write_text(json.dumps(record, indent=1) + "\n")
    print(
        f"{record['generations']} generations of {len(record['methods'])} methods in {given.dtype}, {record['tokens']} tokens in"
        f" {record['rounds']} rounds: {len(record['ties'])} ties, {len(record['differences'])} differences"
    )
    return 1 if record["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
