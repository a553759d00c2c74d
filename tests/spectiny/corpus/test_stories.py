"""Stories keep to the people and things of the request."""

import re

from spectiny.corpus import documents
from spectiny.corpus.people import _HE, _SHE


def test_the_people_of_the_request_are_the_people_of_the_story():
    for document in documents("story", 2, 250):
        asked = {name for name in (*_SHE, *_HE) if re.search(rf"\b{name}\b", document.prompt)}
        told = {name for name in (*_SHE, *_HE) if re.search(rf"\b{name}\b", document.response)}
        assert asked <= told, document
        assert len(told) <= 2, document


def test_a_story_has_several_clean_sentences():
    for document in documents("story", 3, 300):
        assert 6 <= len(re.findall(r"[.!?]", document.response)) <= 16, document
        assert not re.search(r"[<>|${}]|  | [.,:?]|\. [a-z]", document.response), document


def test_stories_differ():
    told = [document.response for document in documents("story", 4, 300)]
    assert len(set(told)) == len(told)
