"""Sizes of a round from method, drafter and options; options without effect are refused."""

import pytest

from speccorrect.law import LawPlan
from specrun import DraftOptions, method
from specrun.plan import (
    DEFAULT_COUPLE,
    DEFAULT_DRAFT_TEMPERATURE,
    MAX_TREE_BUDGET,
    coupling_strength,
    round_plan,
)

from doubles.tiny import dflash_config, qwen3_config

LAW = LawPlan(filters=False, penalties=False, noise=False)
FILL_IN = dflash_config(qwen3_config(), block_size=8)
SHIFTED = dflash_config(qwen3_config(), block_size=8, shifted=True)


def plan_of(name, drafter=FILL_IN, corrector=None, **options):
    return round_plan(method(name), DraftOptions(**options), LAW, drafter, corrector)


def test_plain_decoding_verifies_the_anchor_alone():
    plan = plan_of("ar", None)
    assert (plan.slots, plan.rows, plan.path, plan.shape) == (0, 1, 1, None)


@pytest.mark.parametrize(("drafter", "slots"), [(FILL_IN, 7), (SHIFTED, 8)])
def test_a_chain_drafts_what_the_layout_leaves(drafter, slots):
    plan = plan_of("dflash", drafter)
    assert (plan.block_size, plan.slots, plan.rows, plan.path) == (8, slots, slots + 1, slots + 1)
    assert plan.candidates is None


def test_a_tree_verifies_its_budget_and_the_anchor():
    plan = plan_of("ddtree", tree_budget=20)
    assert (plan.rows, plan.path, plan.shape.lanes, plan.shape.ledger) == (21, 8, 20, 20)
    assert plan.candidates == 20
    assert plan_of("ddtree", tree_budget=MAX_TREE_BUDGET).candidates == 64


def test_a_budget_of_0_keeps_the_sizes_positive():
    plan = plan_of("ddtree", tree_budget=0)
    assert (plan.rows, plan.candidates, plan.shape.lanes) == (1, 1, 1)


def test_a_head_of_few_candidates_bounds_them():
    class Head:
        support = 16

    assert plan_of("dflash", corrector=Head()).candidates == 16
    assert plan_of("ddtree", corrector=Head(), tree_budget=10).candidates == 10


def test_draft_temperature_belongs_to_reject():
    assert plan_of("dflash").draft_temperature == 0.0
    assert plan_of("dflash", accept="reject").draft_temperature == DEFAULT_DRAFT_TEMPERATURE
    assert plan_of("dflash", accept="reject", draft_temperature=0.0).draft_temperature == 0.0


def test_trees_alone_are_coupled():
    assert coupling_strength(method("dflash"), DraftOptions()) == 0.0
    assert coupling_strength(method("ddtree"), DraftOptions(couple=0.0)) == 0.0
    assert coupling_strength(method("ddtree"), DraftOptions()) == DEFAULT_COUPLE > 0


REFUSED = [
    ("dflash", {"block_size": 9}, "block size: got 9, expected 2 to 8"),
    ("dflash", {"block_size": 1}, "block size: got 1"),
    ("ddtree", {"tree_budget": -1}, "tree budget: got -1"),
    ("ddtree", {"tree_budget": MAX_TREE_BUDGET + 1}, "tree budget: got 257"),
    ("dflash", {"accept": "reject", "draft_temperature": -0.1}, "draft temperature: got -0.1"),
    ("dflash", {"tree_budget": 4}, "tree budget: has no effect with method dflash"),
    ("ddtree", {"accept": "reject"}, "accept: method ddtree grows a tree"),
    ("dflash", {"draft_temperature": 0.5}, "draft temperature: has no effect"),
    ("ar", {"block_size": 4}, "block size: has no effect with method ar"),
    ("ar", {"tree_budget": 4}, "tree budget: has no effect with method ar"),
    ("ar", {"accept": "match"}, "accept: has no effect with method ar"),
    ("ar", {"draft_temperature": 0.0}, "draft temperature: has no effect with method ar"),
    ("ar", {"policy": "fixed"}, "policy: has no effect with method ar"),
    ("dflash", {"policy": "magic"}, "policy: got 'magic', expected one of adaflash"),
]


@pytest.mark.parametrize(("name", "options", "message"), REFUSED)
def test_options_that_cannot_work_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        plan_of(name, **options)


def test_a_shifted_block_of_one_row_drafts_one_token():
    assert plan_of("dflash", SHIFTED, block_size=1).slots == 1


@pytest.mark.parametrize(
    ("name", "couple"), [("dflash", 0.5), ("ar", 0.5), ("ddtree", 1.5), ("ddtree", -0.5)]
)
def test_a_coupling_that_cannot_work_is_refused(name, couple):
    with pytest.raises(ValueError, match="couple: "):
        coupling_strength(method(name), DraftOptions(couple=couple))
