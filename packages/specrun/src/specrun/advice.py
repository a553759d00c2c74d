"""What was counted of a generation in, sentences for its user out: drafts that agree too rarely, and likely reasons.

Nothing of it is about the text, which is the target's in any case.
"""

from specmodels import KNOWN_MODELS, KnownDrafter
from specrun.methods import Method
from specrun.stats import Stats

FAR_BELOW = 0.5
"""Share of the reported tokens per round below which something is likely wrong: kinds of text differ by less."""

ENOUGH = 24
"""Rounds from which a mean says something."""


def drafter_known(model: str, method: Method, draft: str | None) -> KnownDrafter | None:
    """What is known of the drafter that a method gets; None for folders and for drafters without a name."""
    if method.corrector is None:
        return None
    if draft is not None:
        known = [drafter for one in KNOWN_MODELS.values() for drafter in one.drafters.values()]
        return next((drafter for drafter in known if drafter.repo == draft.partition("@")[0]), None)
    families = KNOWN_MODELS[model].drafters if model in KNOWN_MODELS else {}
    return families.get("dflash" if method.corrector == "none" else method.corrector)


def advice(
    known: KnownDrafter, stats: Stats, *, length: int, temperature: float, thinking: bool, templated: bool
) -> dict[str, str]:
    """Sentences by what they are about. `length` is that of the longest prompt with its answer."""
    found = {}
    reported, rounds = known.tokens_per_round, stats.rounds - stats.plain_rounds
    per_round = (stats.round_tokens - stats.plain_rounds) / max(1, rounds)
    if reported is not None and rounds >= ENOUGH and per_round < FAR_BELOW * reported:
        causes = [
            *(["thinking is on, and such drafters are trained without"] if thinking else []),
            *([] if templated else ["the chat template is off"]),
            *([f"temperature {temperature:g} makes drafts harder to agree with"] if temperature > 0 else []),
            "text of another kind or language than it was trained on",
            "a target that is not quite the one it was trained for",
        ]
        found["acceptance"] = (
            f"{per_round:.1f} tokens per round over {rounds} rounds, where {reported:g} are reported for"
            f" {known.repo}; likely causes: {'; '.join(causes)}"
        )
    if known.trained_length is not None and length > known.trained_length:
        found["length"] = (
            f"prompt and answer came to {length} tokens, and {known.repo} was trained on at most {known.trained_length}:"
            " drafts get worse behind that, the text does not; plain decoding (--method ar) may be faster there"
        )
    return found
