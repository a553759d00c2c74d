"""Every wording of every function and class is Python, and does what its description says."""

import ast
import copy
import random

import pytest

from spectiny.corpus import documents, source
from spectiny.corpus.classes import CLASS_KINDS
from spectiny.corpus.functions import KINDS, function


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.names.split()[0])
def test_functions_return_what_the_oracle_says(kind):
    bodies = set()
    for seed in range(16):
        rng = random.Random(seed)
        one = function(rng, kind, typed=seed % 2 == 0, documented=seed % 3 == 0)
        bodies.add(one.body)
        space: dict[str, object] = {}
        exec(f"{one.head}\n{one.body}\n", space)
        for case in kind.cases:
            expected = kind.oracle(one.number, *copy.deepcopy(case))
            assert space[one.name](*copy.deepcopy(case)) == expected, (one, case)
    assert len(bodies) >= 6  # several wordings


def test_code_documents_parse_and_define_what_was_asked_for():
    first_lines = 0
    for document in documents("code", 3, 700):
        tree = ast.parse(source(document, document.response))
        names = {node.name for node in tree.body}
        if document.prompt.startswith(("def ", "class ")):
            first_lines += 1
            assert len(tree.body) == 1, document
            assert document.response.startswith("    "), document
        else:
            assert all(f"`{name}" in document.prompt for name in names), document
        assert "$" not in document.prompt + document.response, document
    assert 70 < first_lines < 280


def test_all_classes_can_be_made():
    made = set()
    for document in documents("code", 4, 900):
        if "class " not in source(document, document.response):
            continue
        space: dict[str, object] = {}
        exec(source(document, document.response), space)
        made.update(name for name, thing in space.items() if isinstance(thing, type))
    for kind in CLASS_KINDS:
        assert any(name.endswith(stem) for stem in kind.names.split() for name in made), kind.names


def test_a_stack_works():
    for document in documents("code", 5, 5_000):
        text = source(document, document.response)
        if all(f"def {method}(" in text for method in ("push", "pop", "size")):
            break
    space: dict[str, object] = {}
    exec(text, space)
    (stack,) = (thing() for thing in space.values() if isinstance(thing, type))
    stack.push(3)
    stack.push(4)
    assert (stack.pop(), stack.size()) == (4, 1)
