"""Domino against the library's GRU over the whole vocabulary, and its public files."""

import pytest
import torch
from torch import nn

from speccorrect.correctors.domino import OLD_PREFIX, SPEC, Domino, DominoConfig
from speccorrect.registry import claim_head
from speccorrect.source import HeadShape, HeadSource

from doubles.blocks import (
    CLOSE,
    check_checkpoint,
    check_contract,
    check_refused,
    counting,
    drafted,
    one_hot_rows,
    random_choices,
    randomise,
    tokens_per_round,
)

SIZES = {"hidden_size": 12, "vocab_size": 23, "gru_size": 7, "rank": 5}


def head(plain_slots: int = 1, **sizes) -> Domino:
    return randomise(Domino(DominoConfig(**{**SIZES, "shifted": True, **sizes}, plain_slots=plain_slots)))


@torch.no_grad()
def naive(module: Domino, made, token_BK: torch.Tensor) -> torch.Tensor:
    """Slot by slot: the GRU is run anew over the whole prefix, and every token is scored."""
    config, state = module.config, module.state_dict()
    gru = nn.GRU(config.hidden_size, config.gru_size, batch_first=True, bias=False)
    gru.load_state_dict(
        {"weight_ih_l0": state["prefix.input_weight"], "weight_hh_l0": state["prefix.state_weight"]}
    )
    prefix = torch.cat([made.block.anchor_B[:, None], token_BK], dim=1)
    rows = []
    for k in range(token_BK.shape[1]):
        logits = made.logits_BKV[:, k]
        if k >= config.plain_slots:
            output, _ = gru(made.borrowed.embedding_VD[prefix[:, : k + 1]])
            seen = torch.cat([made.block.rows_BKD[:, k], output[:, -1]], dim=-1)
            logits = logits + nn.functional.silu(seen @ state["narrow"].T) @ state["readout"].T
        rows.append(logits.log_softmax(dim=-1))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("plain_slots", [0, 1, 2, 9])
def test_equals_the_library_over_the_whole_vocabulary(shifted, plain_slots):
    made, module = drafted(shifted=shifted), head(plain_slots)
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    token = random_choices(prepared.candidates)[:, 0]
    torch.testing.assert_close(module.block(prepared, token), naive(module, made, token), rtol=0, atol=CLOSE)


def test_corrected_slots_are_normalised_over_the_candidates_and_plain_ones_over_the_vocabulary():
    made, module = drafted(), head(plain_slots=2)
    given = made.candidates(6)
    prepared = module.prepare(made.block, made.borrowed, given)
    choice = random_choices(given)[:, 0]
    token = given.ids_BKC.gather(-1, choice[..., None]).squeeze(-1)
    expected = naive(module, made, token).gather(-1, given.ids_BKC)
    expected[:, 2:] = expected[:, 2:].log_softmax(dim=-1)
    torch.testing.assert_close(module.block(prepared, choice), expected, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("count", [None, 8])
def test_keeps_the_contract(shifted, count):
    check_contract(head(), drafted(shifted=shifted), count)


@pytest.mark.parametrize("prefix", ["", OLD_PREFIX])
def test_public_names_and_shapes(prefix):
    shape = HeadShape(hidden_size=12, vocab_size=23, block_size=6, shifted=True)
    keys = {
        "projector_type": "domino",
        "shift_label": True,
        "pure_draft_prefix_len": 1,
        "gru_hidden_dim": 7,
        "emb_dim": 5,
    }
    shapes = {
        "prefix_gru.weight_ih_l0": (21, 12),
        "prefix_gru.weight_hh_l0": (21, 7),
        "embed_proj.0.weight": (5, 19),
        "embed_proj.2.weight": (23, 5),
    }
    if not prefix:
        check_checkpoint(SPEC, shape, keys, shapes, saved=keys)
        return
    # older files: another prefix, another name of the method, and the layout already taken by the drafter
    old = {key: value for key, value in keys.items() if key != "shift_label"} | {
        "projector_type": "causal_v5"
    }
    source = HeadSource(
        shape=shape, config=old, tensors={prefix + name: torch.randn(size) for name, size in shapes.items()}
    )
    name, module = claim_head(source)
    assert name == "domino"
    assert not source.config
    assert not source.tensors
    assert SPEC.save(module)[0] == keys


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"projector_type": "dspark"}, "projector_type"),
        ({"shift_label": False}, "shift_label"),
        ({"pure_draft_prefix_len": -1}, "pure_draft_prefix_len"),
        ({"gru_hidden_dim": 0}, "gru_hidden_dim"),
        ({"emb_dim": "5"}, "emb_dim"),
    ],
)
def test_a_wrong_key_is_named(change, said):
    shape = HeadShape(hidden_size=12, vocab_size=23, block_size=6, shifted=True)
    keys, tensors = SPEC.save(head())
    check_refused(SPEC, HeadSource(shape=shape, config=keys | change, tensors=dict(tensors)), said)


@pytest.mark.parametrize("key", ["projector_type", "pure_draft_prefix_len"])
def test_a_key_that_no_tensor_shows_is_required(key):
    shape = HeadShape(hidden_size=12, vocab_size=23, block_size=6, shifted=True)
    keys, tensors = SPEC.save(head())
    del keys[key]
    check_refused(SPEC, HeadSource(shape=shape, config=keys, tensors=dict(tensors)), key, "missing")


@pytest.mark.parametrize("first", [0, 1])
def test_a_wrong_slot_layout_shows(first):
    module = SPEC.new(HeadShape(hidden_size=11, vocab_size=11, block_size=6, shifted=first == 0))
    assert tokens_per_round(module, counting(one_hot_rows, 5, first=first, right=True)) == 6
    assert tokens_per_round(module, counting(one_hot_rows, 5, first=first, right=False)) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_the_prefix_reaches_its_own_slot(first):
    """A GRU set by hand to remember its last input, and a readout that says "plus 1", draft without any base logits."""
    vocab, slots = 11, 5
    made = counting(
        lambda spoken: torch.zeros(*spoken.shape, vocab), slots, first=first, right=True, vocab=vocab
    )
    module = Domino(
        DominoConfig(
            hidden_size=vocab, vocab_size=vocab, gru_size=vocab, rank=vocab, plain_slots=0, shifted=first == 0
        )
    )
    eye, none = torch.eye(vocab), torch.zeros(vocab, vocab)
    with torch.no_grad():
        module.prefix.input_weight.copy_(torch.cat([none, -30 * torch.ones(vocab, vocab), 3 * eye]))
        module.prefix.state_weight.zero_()
        module.narrow.copy_(torch.cat([none, 5 * eye], dim=1))
        module.readout.copy_(eye.roll(1, dims=0))
    assert tokens_per_round(module, made) == slots + 1


def test_starts_as_no_correction():
    made = drafted()
    module = SPEC.new(made.shape)
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    rows = module.block(prepared, random_choices(prepared.candidates)[:, 0])
    torch.testing.assert_close(rows, made.logits_BKV.log_softmax(dim=-1), rtol=0, atol=CLOSE)
