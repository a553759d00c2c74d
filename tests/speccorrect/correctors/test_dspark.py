"""DSpark's equations as loops, its public layouts, and what may not be guessed about its confidence."""

import pytest
import torch
from torch import nn

from speccorrect.correctors.dspark import SPEC, DSpark, DSparkConfig
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

KINDS = ["vanilla", "gated", "rnn"]
CONFIDENCES = ["none", "hidden", "markov"]
SHAPE = HeadShape(hidden_size=12, vocab_size=23, block_size=5, shifted=True)


def head(kind: str, confidence: str = "markov", **sizes) -> DSpark:
    sizes = {"hidden_size": 12, "vocab_size": 23, "rank": 5, **sizes}
    return randomise(DSpark(DSparkConfig(kind=kind, confidence=confidence, shifted=True, **sizes)))


@torch.no_grad()
def naive(module: DSpark, made, token_BK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One row of the batch and one slot at a time, straight from the equations."""
    state, kind = module.state_dict(), module.config.kind
    scores, judged = torch.empty_like(made.logits_BKV), torch.empty(token_BK.shape)
    for b in range(token_BK.shape[0]):
        memory, previous = torch.zeros(module.config.rank), made.block.anchor_B[b]
        for k in range(token_BK.shape[1]):
            h, e = made.block.rows_BKD[b, k], state["previous"][previous]
            if kind == "gated":
                feature = torch.sigmoid(state["mix"] @ torch.cat([h, e]) + state["mix_bias"]) * e
            elif kind == "rnn":
                joint = state["mix"] @ torch.cat([memory, e, h]) + state["mix_bias"]
                gate, candidate, output = joint.chunk(3)
                memory = torch.sigmoid(gate) * memory + (1 - torch.sigmoid(gate)) * torch.tanh(candidate)
                feature = torch.tanh(output)
            else:
                feature = e
            scores[b, k] = (made.logits_BKV[b, k] + state["readout"] @ feature).log_softmax(dim=-1)
            if module.config.confidence == "hidden":
                judged[b, k] = state["judge"][0] @ h + state["judge_bias"][0]
            elif module.config.confidence == "markov":
                judged[b, k] = state["judge"][0] @ torch.cat([h, e]) + state["judge_bias"][0]
            previous = token_BK[b, k]
    return scores, judged if module.config.confidence != "none" else None


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_equations(kind, confidence, shifted):
    made, module = drafted(shifted=shifted), head(kind, confidence)
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    token = random_choices(prepared.candidates)[:, 0]
    scores, judged = naive(module, made, token)
    torch.testing.assert_close(module.block(prepared, token), scores, rtol=0, atol=CLOSE)
    state = module.start(prepared)
    for depth in range(made.block.slots):
        found = module.confidence(prepared, depth, state)
        if judged is None:
            assert found is None
        else:
            torch.testing.assert_close(found[:, 0], judged[:, depth], rtol=0, atol=CLOSE)
        state = module.advance(prepared, depth, token[:, depth, None], state)


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [None, 8])
def test_keeps_the_contract(kind, confidence, count):
    check_contract(head(kind, confidence), drafted(shifted=False), count)


@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_only_a_confidence_of_the_hidden_row_is_free_of_the_path(confidence):
    assert head("vanilla", confidence).path_free_confidence is (confidence == "hidden")


MARKOV = {"markov_head.markov_w1.weight": (23, 5), "markov_head.markov_w2.weight": (23, 5)}
MIX = {
    "vanilla": {},
    "gated": {"markov_head.gate_proj.weight": (5, 17), "markov_head.gate_proj.bias": (5,)},
    "rnn": {"markov_head.joint_proj.weight": (15, 22), "markov_head.joint_proj.bias": (15,)},
}
JUDGE = {
    "none": {},
    "hidden": {"confidence_head.proj.weight": (1, 12), "confidence_head.proj.bias": (1,)},
    "markov": {"confidence_head.proj.weight": (1, 17), "confidence_head.proj.bias": (1,)},
}


def keys_of(kind: str, confidence: str) -> dict:
    return {
        "projector_type": "dspark",
        "sample_from_anchor": True,
        "markov_rank": 5,
        "markov_head_type": kind,
        "enable_confidence_head": confidence != "none",
        "confidence_head_with_markov": confidence == "markov",
    }


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("kind", KINDS)
def test_public_names_and_shapes(kind, confidence):
    keys = keys_of(kind, confidence)
    check_checkpoint(SPEC, SHAPE, keys, MARKOV | MIX[kind] | JUDGE[confidence], saved=keys)


def load(config: dict, shapes: dict[str, tuple[int, ...]]) -> tuple[DSpark, HeadSource]:
    tensors = {name: torch.randn(size) for name, size in shapes.items()}
    source = HeadSource(shape=SHAPE, config=config, tensors=tensors)
    name, module = claim_head(source)
    assert name == "dspark"
    assert not source.config
    assert not source.tensors
    return module, source


def test_the_layout_of_deepspec():
    keys = {
        "num_anchors": 512,
        "markov_rank": 5,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
    }
    module, _ = load(keys | {"confidence_head_with_markov": True}, MARKOV | JUDGE["markov"])
    assert module.config.confidence == "markov"


def test_the_layout_of_specforge():
    keys = {
        "projector_type": "dspark",
        "confidence_head_alpha": 1.0,
        "attention_mode": "gqa",
        "markov_rank": 5,
    }
    module, _ = load(keys, MARKOV | JUDGE["hidden"])
    assert module.config.confidence == "hidden"


def test_the_flat_layout_of_modelopt():
    flat = {
        name.replace("markov_head.", "").replace("confidence_head.proj", "confidence_proj"): size
        for name, size in (MARKOV | MIX["rnn"] | JUDGE["markov"]).items()
    }
    keys = {"projector_type": "dspark", "shift_label": True, "markov_rank": 5, "markov_head_type": "rnn"}
    module, _ = load(keys | {"use_confidence_head": True}, flat)
    assert module.config.kind == "rnn"


def test_the_prefixed_layout():
    keys = {"dspark_markov_rank": 5, "dspark_markov_head_type": "gated", "dspark_draft_topk": 0}
    module, _ = load(keys, MARKOV | MIX["gated"])
    assert module.config.confidence == "none"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"markov_rank": 0}, "markov_rank"),
        ({"markov_rank": 6}, "shape"),
        ({"dspark_markov_rank": 6}, "dspark_markov_rank"),
        ({"markov_head_type": "transformer"}, "markov_head_type"),
        ({"enable_confidence_head": False}, "enable_confidence_head"),
        ({"confidence_head_with_markov": False}, "confidence_head_with_markov"),
        ({"sample_from_anchor": False}, "sample_from_anchor"),
        ({"projector_type": "domino"}, "projector_type"),
    ],
)
def test_a_wrong_key_is_named(change, said):
    keys, tensors = SPEC.save(head("vanilla"))
    check_refused(SPEC, HeadSource(shape=SHAPE, config=keys | change, tensors=dict(tensors)), said)


def test_a_confidence_that_was_promised_has_to_be_there():
    keys, tensors = SPEC.save(head("vanilla", "none"))
    changed = keys | {"enable_confidence_head": True}
    check_refused(
        SPEC, HeadSource(shape=SHAPE, config=changed, tensors=dict(tensors)), "enable_confidence_head"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [0, 1])
def test_a_wrong_slot_layout_shows(kind, first):
    """Base logits and gates come from the hidden rows, so rows of another layout draft other tokens."""
    module = DSpark(
        DSparkConfig(hidden_size=11, vocab_size=11, rank=11, kind=kind, confidence="none", shifted=first == 0)
    )
    module.reset(torch.Generator().manual_seed(0))
    assert tokens_per_round(module, counting(one_hot_rows, 5, first=first, right=True)) == 6
    assert tokens_per_round(module, counting(one_hot_rows, 5, first=first, right=False)) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [0, 1])
def test_the_previous_token_reaches_its_own_slot(kind, first):
    """Tables set by hand to say "plus 1" draft without any base logits, the first slot from the anchor."""
    vocab = 11
    made = counting(lambda spoken: torch.zeros(*spoken.shape, vocab), 5, first=first, right=True, vocab=vocab)
    config = DSparkConfig(
        hidden_size=vocab, vocab_size=vocab, rank=vocab, kind=kind, confidence="none", shifted=first == 0
    )
    module, eye = DSpark(config), torch.eye(vocab)
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.zero_()
        module.previous.copy_(5 * eye)
        module.readout.copy_(eye.roll(1, dims=0))
        if kind == "rnn":  # the output row of the joint projection reads the previous token
            module.mix[2 * vocab :, vocab : 2 * vocab].copy_(eye)
    assert tokens_per_round(module, made) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_starts_as_no_correction(kind):
    made = drafted()
    module = DSpark(
        DSparkConfig(hidden_size=12, vocab_size=23, rank=5, kind=kind, confidence="markov", shifted=True)
    )
    module.reset(torch.Generator().manual_seed(0))
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    rows = module.block(prepared, random_choices(prepared.candidates)[:, 0])
    torch.testing.assert_close(rows, made.logits_BKV.log_softmax(dim=-1), rtol=0, atol=CLOSE)
    assert module.confidence(prepared, 0, module.start(prepared)).abs().max() == 0


def test_gradients_reach_every_part_after_the_first_step():
    made, module = drafted(), head("rnn")
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    loss = module.block(prepared, random_choices(prepared.candidates)[:, 0]).square().mean()
    (loss + module.confidence(prepared, 1, module.start(prepared)).sum()).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in module.parameters())
    assert isinstance(module, nn.Module)
