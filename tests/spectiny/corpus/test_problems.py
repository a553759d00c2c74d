"""The arithmetic in the reasoning is right, and leads to the answer."""

import re

import pytest

from spectiny.corpus import check, documents
from spectiny.corpus.reasoning import final_answer
from spectiny.document import Document

SUMS = (
    (r"(\d+) (?:\+|plus) (\d+) (?:=|is) (\d+)", lambda a, b: a + b),
    (r"(\d+) (?:-|minus) (\d+) (?:=|is) (-?\d+)", lambda a, b: a - b),
    (r"(\d+) (?:\*|times) (\d+) (?:=|is) (\d+)", lambda a, b: a * b),
    (r"(\d+) (?:/|divided by) (\d+) (?:=|is) (\d+)", lambda a, b: a / b),
    (r"adding (\d+) to (\d+) gives (\d+)", lambda a, b: a + b),
    (r"taking (\d+) from (\d+) leaves (-?\d+)", lambda a, b: b - a),
)


@pytest.mark.parametrize("domain", ["math", "math-shifted"])
def test_every_sum_is_right_and_the_answer_is_one_of_them(domain):
    for document in documents(domain, 5, 500):
        results = set()
        for pattern, result in SUMS:
            for a, b, c in re.findall(pattern, document.response, re.IGNORECASE):
                assert result(int(a), int(b)) == int(c), document
                results.add(int(c))
        answer = final_answer(document.response)
        assert answer in results, document
        assert 0 <= answer < 1_000, document


@pytest.mark.parametrize("domain", ["math", "math-shifted"])
def test_no_template_syntax_is_left_over(domain):
    for document in documents(domain, 6, 500):
        text = f"{document.prompt} {document.response}"
        assert not re.search(r"[<>|$]|  | [.,:?]", text), text
        assert document.prompt.endswith("?"), document


def test_numbers_of_the_reasoning_start_from_those_of_the_prompt():
    # The first operands of a problem must have been told: a step that uses an unknown number would be unsolvable.
    seen = 0
    for document in documents("math", 7, 300):
        told = {int(number) for number in re.findall(r"\d+", document.prompt)} | {2, 3, 4}
        first = re.search(r"(\d+) (?:[-+*/]|plus|minus|times|divided by) (\d+)", document.response)
        if first and "adding" not in document.response and "taking" not in document.response:
            assert {int(first[1]), int(first[2])} <= told, document
            seen += 1
    assert seen > 100


def test_check_reads_the_last_answer():
    document = Document("math", "How many?", "So 2 + 3 = 5. The answer is 5.")
    assert check(document, "The answer is 4. No. The answer is 5.")
    assert not check(document, "The answer is 4.")
    assert not check(document, "five")


def test_check_refuses_a_document_without_an_answer():
    with pytest.raises(ValueError, match="pass a word problem"):
        check(Document("story", "Tell a story.", "Once."), "The answer is 5.")
