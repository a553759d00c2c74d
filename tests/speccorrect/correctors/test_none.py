"""Plain DFlash: marginals over the whole vocabulary, and files that say that they carry no head."""

import pytest
import torch

from speccorrect.correctors.none import SPEC
from speccorrect.registry import claim_head
from speccorrect.source import HeadSource

from doubles.blocks import CLOSE, check_contract, counting, drafted, one_hot_rows, tokens_per_round

PLAIN = {"markov_rank": 0, "markov_head_type": "vanilla", "enable_confidence_head": False, "num_anchors": 512}


@pytest.mark.parametrize("count", [None, 8])
@pytest.mark.parametrize("shifted", [True, False])
def test_keeps_the_contract(count, shifted):
    check_contract(SPEC.new(drafted().shape), drafted(shifted=shifted), count)


def test_candidates_keep_the_normaliser_of_the_whole_vocabulary():
    made, module = drafted(), SPEC.new(drafted().shape)
    given = made.candidates(6)
    prepared = module.prepare(made.block, made.borrowed, given)
    expected = made.logits_BKV.log_softmax(dim=-1).gather(-1, given.ids_BKC)
    torch.testing.assert_close(prepared.scores_BKC, expected, rtol=0, atol=CLOSE)
    best = module.confidence(prepared, 2, module.start(prepared)).sigmoid()
    torch.testing.assert_close(best, expected[:, 2, :1].exp(), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("first", [0, 1])
def test_a_wrong_slot_layout_shows(first):
    made = counting(one_hot_rows, 5, first=first, right=True)
    assert tokens_per_round(SPEC.new(made.shape), made) == 6
    assert tokens_per_round(SPEC.new(made.shape), counting(one_hot_rows, 5, first=first, right=False)) == 1


def test_takes_the_keys_that_say_there_is_no_head():
    source = HeadSource(shape=drafted().shape, config=dict(PLAIN))
    assert claim_head(source)[0] == "none"
    assert not source.config


@pytest.mark.parametrize("change", [{"markov_rank": 256}, {"enable_confidence_head": True}])
def test_leaves_the_keys_of_a_head_that_is_missing(change):
    source = HeadSource(shape=drafted().shape, config=PLAIN | change)
    assert claim_head(source)[0] == "none"
    assert source.config == PLAIN | change
