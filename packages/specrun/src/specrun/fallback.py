"""Whether the next round drafts: what drafting and plain decoding cost and yielded so far in, a decision out.

Drafting goes on while its rounds yield more tokens per second than plain decoding. Where they do not, decoding is plain,
and now and then a trial of a few rounds shows whether the text is easier to foretell: when a request begins, and later
at growing distances. Trials are paid for: plain decoding earns a small share of its time as credit, drafting earns what
it gained, and a trial that the credit does not cover waits. So in the long run little more than that share is ever lost,
with a hopeless drafter too, while easy texts pay for trials of those that follow.

Seconds come from a table of costs, not from a clock: one slow moment of the machine changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

SHARE = 0.01
"""Of the time of plain decoding, what may be spent on trials."""
TRIAL = 3
"""Rounds of a trial."""
RETURN = 1.05
"""Times the speed of plain decoding that a trial has to reach; to stay, drafting only has to be no slower."""
FADE = 0.9
"""Weight of a drafting round against the next one."""
TRUST = 8.0
"""Rounds that the first estimate counts for."""
LEFT = 1.0
"""Rounds that all experience counts for when a trial begins: the text may be another one by now."""
STAKE = 2.0
"""Credit to begin with, in rounds of plain decoding."""
LARGEST = 200.0
"""Most credit that can be held, likewise."""
NEW = 4.0
"""Rounds that experience of earlier requests counts for."""
PAUSE, LONGEST_PAUSE = 16, 512
"""Plain rounds behind a trial that failed; the next one waits twice as long."""


@dataclass(slots=True, kw_only=True)
class Fallback:
    """Kept between requests. Tokens are per request of a batch and round."""

    tokens: float  # that a drafting round is expected to yield
    seconds: float  # that it is expected to take
    plain: float  # seconds of a round of plain decoding
    drafting: bool = field(init=False)
    _weight: float = field(default=TRUST, init=False)
    _credit: float = field(init=False)
    _trial: int = field(default=0, init=False)  # rounds of the trial under way that are still to come
    _pause: int = field(default=PAUSE, init=False)  # behind the next trial that fails
    _wait: int = field(default=0, init=False)  # plain rounds before the next trial

    def __post_init__(self) -> None:
        self.drafting = self.gain >= 1
        self._credit = STAKE * self.plain

    @property
    def gain(self) -> float:
        """Speed of drafting over that of plain decoding, as far as is known."""
        return self.tokens * self.plain / self.seconds

    def begin(self) -> None:
        """A request begins, with a text of its own."""
        self._weight = min(self._weight, NEW)
        self._pause, self._wait = PAUSE, 0

    def drafts(self, catching_up: Callable[[], float]) -> bool:
        """Whether the next round drafts; `catching_up` says how many seconds the drafter would need before it."""
        if self.drafting or self._trial:
            return True
        if self._wait:
            return False
        loss = TRIAL * max(0.0, self.seconds - self.tokens * self.plain)
        if self._credit < loss or self._credit < loss + catching_up():
            return False
        self._credit -= catching_up()
        self._trial = TRIAL
        self._weight = min(self._weight, LEFT)
        return True

    def drafted(self, tokens: float, seconds: float, plain: float) -> None:
        """A round drafted; `plain` is what one of plain decoding would have taken."""
        share = 1 / (self._weight + 1)
        self.tokens += share * (tokens - self.tokens)
        self.seconds += share * (seconds - self.seconds)
        self._weight = FADE * (self._weight + 1)
        self._earn(tokens * plain - seconds, plain)
        if self._trial:
            self._trial -= 1
            self.drafting = self._trial == 0 and self.gain >= RETURN
            if self._trial == 0 and not self.drafting:
                self._wait, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        elif self.gain < 1:
            self.drafting = False

    def decoded(self, plain: float) -> None:
        """A round was plain."""
        self._wait = max(0, self._wait - 1)
        self._earn(SHARE * plain, plain)

    def _earn(self, seconds: float, plain: float) -> None:
        self.plain = plain
        self._credit = min(self._credit + seconds, LARGEST * plain)
