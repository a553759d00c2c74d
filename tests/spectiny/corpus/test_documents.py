"""The same seed gives the same documents; held-out prompts are not those of training."""

from itertools import islice

import pytest

import spectiny
from spectiny.corpus import documents, held_out
from spectiny.corpus.stdlib import stdlib


@pytest.mark.parametrize("domain", ["math", "code", "story", "math-shifted"])
def test_the_same_seed_gives_the_same_documents(domain):
    first = list(documents(domain, 1, 200))
    assert first == list(documents(domain, 1, 200))
    assert first != list(documents(domain, 2, 200))
    assert first[:50] == list(documents(domain, 1, 50))
    assert {document.domain for document in first} == {domain}


def test_stdlib_documents_repeat():
    assert list(documents("stdlib", 0, 50)) == list(islice(stdlib(held_out=False, seed=0), 50))


def test_an_unknown_domain_is_refused():
    with pytest.raises(ValueError, match="math, code, story"):
        list(documents("poems", 0, 1))


@pytest.mark.parametrize("domain", ["math", "code", "story", "math-shifted"])
def test_the_stored_prompts_are_the_held_out_ones(domain):
    stored = spectiny.prompts(domain)
    assert stored == held_out(domain, len(stored))


def test_shifted_problems_are_of_other_kinds():
    trained = [one.prompt for one in documents("math", 1, 600)]
    shifted = [one.prompt for one in spectiny.prompts("math-shifted")]
    for words in ("fence", "legs", "three games", "steps above"):
        assert any(words in prompt for prompt in shifted), words
        assert not any(words in prompt for prompt in trained), words
