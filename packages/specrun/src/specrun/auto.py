"""Method auto: of the drafters that a model has, the one that is fastest on this machine, and whether it pays at all.

Every candidate is tried once on three prompts of our own, greedy, under the policy `measured`; what a round costs comes
from a table, what it yields from the trial. Chains are tried first, then the trees of the better heads. The result is
kept on disk. While decoding, `specrun.fallback` goes on judging.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specrun.config import DraftOptions, Sampling
from specrun.costs import CostTable
from specrun.engine import Engine
from specrun.fallback import Fallback
from specrun.measure import measure_costs
from specrun.methods import Method, methods
from specrun.store import read, write

AUTO = "auto"
POLICY = "measured"
PROMPTS = (
    "Tom has 12 apples and buys 3 bags with 8 apples each. How many apples does he have now?",
    "Write a Python function that returns the largest number of a list.",
    "Tell a short story about a lighthouse.",
)
TOKENS = 32
CONTEXT = 128
WIDTHS = (1, 4)
"""Rows verified in the trial's table of costs, beside all rows."""
REPEATS = 3
HEADS = 2
"""Heads whose trees are tried: those with the fastest chains."""

log = logging.getLogger(__name__)

Opener = Callable[[Method, DraftOptions, CostTable | None], Engine]
"""Loads an engine with a method of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a method did on the prompts."""

    method: str
    tokens: float  # of a round
    seconds: float  # of a round
    plain: float  # of a round of plain decoding

    @property
    def gain(self) -> float:
        """Times the speed of plain decoding."""
        return self.tokens * self.plain / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The fastest method and all that were tried, fastest first."""

    tried: tuple[Tried, ...]

    @property
    def best(self) -> Tried:
        return self.tried[0]

    @property
    def why(self) -> str:
        """A sentence for people."""
        others = ", ".join(f"{one.method} {one.gain:.2f}" for one in self.tried[1:4])
        rest = f", against {others}" if others else ""
        return f"{self.best.method} promised {self.best.gain:.2f} times plain decoding on trial prompts{rest}"

    def fallback(self) -> Fallback:
        """A judge that begins with what the trial showed."""
        return Fallback(tokens=self.best.tokens, seconds=self.best.seconds, plain=self.best.plain)


def choose(correctors: Sequence[str], described: Mapping[str, Any], open_with: Opener) -> Choice:
    """The choice that was made before under this description; else one by trial."""
    held = read(AUTO, described)
    if held is not None:
        return Choice(tried=tuple(Tried(**one) for one in held))
    log.info("trying %d drafter(s) on this machine, once; name a method to do without", len(correctors))
    chains = [item for item in methods().values() if item.growth == "chain" and item.corrector in correctors]
    tried = sorted((_try(item, open_with) for item in chains), key=lambda one: -one.gain)
    heads = {methods()[one.method].corrector for one in tried[:HEADS]}
    trees = [item for item in methods().values() if item.growth == "tree" and item.corrector in heads]
    tried = sorted([*tried, *(_try(item, open_with) for item in trees)], key=lambda one: -one.gain)
    write(AUTO, described, [asdict(one) for one in tried])
    return Choice(tried=tuple(tried))


def refuse_options(options: DraftOptions) -> None:
    """How to draft is what auto decides."""
    for name, value in asdict(options).items():
        if value is not None:
            raise ValueError(
                f"{name.replace('_', ' ')}: got {value} with method auto, which chooses that itself; name a method"
            )


def _try(item: Method, open_with: Opener) -> Tried:
    untrimmed = open_with(item, DraftOptions(), None)
    table = measure_costs(untrimmed, contexts=(CONTEXT,), widths=WIDTHS, repeats=REPEATS)
    engine = open_with(item, DraftOptions(policy=POLICY), table)
    room = engine.context - max(len(_ids(engine, prompt)) for prompt in PROMPTS)
    sampling = Sampling(max_new_tokens=max(2, min(TOKENS, room)), stop_ids=())
    stats = [engine.generate(_ids(engine, prompt), sampling).stats for prompt in PROMPTS]
    rounds = sum(one.rounds for one in stats)
    rows = sum(one.verified_rows for one in stats) / rounds
    return Tried(
        method=item.name,
        tokens=sum(one.round_tokens for one in stats) / rounds,
        seconds=table.seconds(CONTEXT, rows),
        plain=table.plain_at(CONTEXT),
    )


def _ids(engine: Engine, prompt: str) -> list[int]:
    """In the chat template where there is one."""
    template = engine.prompting.template
    if template is None or isinstance(template, ValueError):
        return engine.prompt_ids(prompt)
    return engine.chat_ids(prompt)
