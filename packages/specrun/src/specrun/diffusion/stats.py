"""What is counted and timed while an answer is denoised."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class DiffusionStats:
    """Counters of one answer. A forward is one pass of a model over some rows; reading the prompt counts as none."""

    prompt_tokens: int = 0
    tokens: int = 0  # of the answer, its end included
    draft_forwards: int = 0
    draft_edits: int = 0  # tokens that decoding replaced by others
    settle_forwards: int = 0  # of the drafting ones, those that only bring the cache up to date
    refine_forwards: int = 0
    edits_per_step: list[int] = field(default_factory=list)  # of refinement, filled masks included
    prefill_seconds: float = 0.0
    draft_seconds: float = 0.0
    refine_seconds: float = 0.0

    @property
    def forwards(self) -> int:
        return self.draft_forwards + self.refine_forwards

    @property
    def tokens_per_forward(self) -> float:
        return self.tokens / self.forwards if self.forwards else 0.0

    @property
    def seconds(self) -> float:
        return self.prefill_seconds + self.draft_seconds + self.refine_seconds
