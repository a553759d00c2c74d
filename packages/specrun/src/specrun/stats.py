"""What is counted and timed while a request decodes."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Stats:
    """Counters of one request, or the sum of several.

    Tokens per round is the number of kept tokens of the rounds over the number of rounds: the bonus counts, the
    prefill's token and tokens cut off behind a stop do not.
    """

    prompt_tokens: int = 0
    kept_tokens: int = 0  # of the prompt's, which the caches held already
    tokens: int = 0  # kept new tokens, the prefill's included
    rounds: int = 0  # verification passes
    round_tokens: int = 0  # kept tokens of those passes
    verified_rows: int = 0  # rows that the target ran in them
    plain_rounds: int = 0  # of them, those that drafted nothing
    tried: list[int] = field(default_factory=list)  # rounds whose walk reached the token at this depth
    accepted: list[int] = field(default_factory=list)  # of those, rounds in which it was accepted
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    stage_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def tokens_per_round(self) -> float:
        return self.round_tokens / self.rounds if self.rounds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens behind the first one over decode time."""
        return self.round_tokens / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def acceptance_by_depth(self) -> list[float]:
        """Of the rounds that reached a depth, the share that accepted its token."""
        return [hit / tries for hit, tries in zip(self.accepted, self.tried, strict=True) if tries]

    def count_round(self, *, kept: int, accepted: int, slots: int, rows: int) -> None:
        """Count one pass: `kept` tokens of a walk that accepted `accepted` drafted tokens of at most `slots`."""
        self.rounds += 1
        self.tokens += kept
        self.round_tokens += kept
        self.verified_rows += rows
        grow = slots - len(self.tried)
        self.tried.extend([0] * grow)
        self.accepted.extend([0] * grow)
        # a round that was cut says nothing of the depths behind the cut
        hits = min(accepted, kept)
        for depth in range(hits):
            self.tried[depth] += 1
            self.accepted[depth] += 1
        if hits == accepted < slots and kept > accepted:
            self.tried[hits] += 1

    def add(self, other: "Stats") -> None:
        """Sum another request's counters into these."""
        for name in (
            "prompt_tokens",
            "kept_tokens",
            "tokens",
            "rounds",
            "round_tokens",
            "verified_rows",
            "plain_rounds",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.prefill_seconds += other.prefill_seconds
        self.decode_seconds += other.decode_seconds
        for mine, theirs in ((self.tried, other.tried), (self.accepted, other.accepted)):
            mine.extend([0] * (len(theirs) - len(mine)))
            for depth, value in enumerate(theirs):
                mine[depth] += value
        for stage, seconds in other.stage_seconds.items():
            self.stage_seconds[stage] = self.stage_seconds.get(stage, 0.0) + seconds
