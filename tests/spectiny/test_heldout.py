"""Two hundred distinct prompts of each domain come with the package."""

import pytest

import spectiny


def test_every_domain_has_its_prompts():
    everything = spectiny.prompts()
    assert (
        len(everything)
        == len({(one.domain, one.prompt) for one in everything})
        == 200 * len(spectiny.DOMAINS)
    )
    for domain in spectiny.DOMAINS:
        found = spectiny.prompts(domain)
        assert len(found) == 200
        assert {one.domain for one in found} == {domain}
        assert all(one.prompt and one.response for one in found)


def test_prompts_are_text_without_special_tokens():
    assert not any("<|im_" in one.prompt + one.response for one in spectiny.prompts())


def test_an_unknown_domain_is_refused():
    with pytest.raises(ValueError, match="got domain 'poems', expected one of math, code"):
        spectiny.prompts("poems")
