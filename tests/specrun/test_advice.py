"""Notes come where drafts agree far less than reported or beyond the training length, and nowhere else."""

import pytest

from specmodels import KNOWN_MODELS, KnownDrafter
from specrun import Stats, method
from specrun.advice import ENOUGH, advice, drafter_known

KNOWN = KnownDrafter(repo="a/b", revision="main", tokens_per_round=6.0, trained_length=100)
USUAL = {"length": 50, "temperature": 0.0, "thinking": False, "templated": True}


def stats(rounds, tokens):
    return Stats(rounds=rounds, round_tokens=tokens)


def test_rare_agreement_is_said_with_the_causes_that_apply():
    (text,) = advice(KNOWN, stats(40, 100), **USUAL).values()
    assert text.startswith(
        "2.5 tokens per round over 40 rounds, where 6 are reported for a/b; likely causes: text of"
    )
    more = {"temperature": 0.7, "thinking": True, "templated": False}
    (text,) = advice(KNOWN, stats(40, 100), **USUAL | more).values()
    for cause in ("thinking is on", "the chat template is off", "temperature 0.7", "language"):
        assert cause in text


@pytest.mark.parametrize(
    ("rounds", "tokens"), [(40, 121), (ENOUGH - 1, ENOUGH - 1), (0, 0)], ids=["as usual", "too few", "none"]
)
def test_nothing_is_said_otherwise(rounds, tokens):
    assert advice(KNOWN, stats(rounds, tokens), **USUAL) == {}


def test_lengths_beyond_the_training():
    assert advice(KNOWN, stats(40, 200), **USUAL | {"length": 100}) == {}
    found = advice(KNOWN, stats(40, 200), **USUAL | {"length": 101})
    assert found.keys() == {"length"}
    assert "came to 101 tokens, and a/b was trained on at most 100" in found["length"]


def test_what_nobody_reported_is_not_compared():
    silent = KnownDrafter(repo="a/b", revision="main")
    assert advice(silent, stats(40, 40), **USUAL | {"length": 10**6}) == {}


def test_the_drafter_that_a_method_gets():
    known = KNOWN_MODELS["qwen3-8b"].drafters
    assert drafter_known("qwen3-8b", method("ddtree"), None) is known["dflash"]
    assert drafter_known("qwen3-8b", method("dominotree"), None) is known["domino"]
    assert drafter_known("anything", method("dspark"), f"{known['dspark'].repo}@main") is known["dspark"]
    assert drafter_known("qwen3-8b", method("ar"), None) is None
    assert drafter_known("tiny", method("dflash"), None) is None
    assert drafter_known("a/folder", method("dflash"), "another/folder") is None
