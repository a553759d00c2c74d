"""Names of methods come from the correctors that exist, and from nowhere else."""

import pytest

from speccorrect.registry import corrector_specs
from specrun import method, methods


def test_every_corrector_has_a_chain_and_a_tree():
    made = {(item.corrector, item.growth) for item in methods().values()}
    assert made == {(None, "plain")} | {
        (name, growth) for name in corrector_specs() for growth in ("chain", "tree")
    }


def test_names_are_their_keys_and_plain_ones_come_first():
    assert all(name == item.name for name, item in methods().items())
    assert list(methods())[:3] == ["ar", "dflash", "ddtree"]


def test_a_head_gives_its_name_to_its_chain_and_with_tree_to_its_tree():
    for name in corrector_specs():
        if name != "none":
            assert (method(name).corrector, method(name).growth) == (name, "chain")
            assert (method(f"{name}tree").corrector, method(f"{name}tree").growth) == (name, "tree")


def test_every_method_says_what_it_is():
    for item in methods().values():
        assert item.title
        assert item.summary
        assert item.paper


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="method: got 'eagle', expected one of ar, dflash, ddtree"):
        method("eagle")
