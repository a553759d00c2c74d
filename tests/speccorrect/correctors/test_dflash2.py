"""DFlash 2's selector: the formula term by term, its tables, its files."""

import math

import pytest
import torch

from speccorrect.contract import unroll
from speccorrect.correctors.dflash2 import SPEC, DFlash2, DFlash2Config
from speccorrect.grow import grow_chain
from speccorrect.source import HeadSource

from doubles.blocks import CLOSE, Drafted, check_contract, drafted, random_choices, randomise

VOCAB, RANK, TOP_K = 40, 6, 5


def head(given: Drafted, top_k: int = TOP_K) -> DFlash2:
    return randomise(DFlash2(DFlash2Config(shape=given.shape, rank=RANK, top_k=top_k)))


def naive(module: DFlash2, given: Drafted, candidates, choice_BK: torch.Tensor) -> torch.Tensor:
    """One number at a time, straight from the formula, in double precision."""
    block, ids, base = given.block, candidates.ids_BKC, candidates.base_BKC
    batch, slots, count = base.shape
    weights = {name: tensor.double() for name, tensor in module.state_dict().items()}
    rows = torch.zeros(batch, slots, count, dtype=torch.float64)
    for row in range(batch):
        before = int(block.anchor_B[row])
        for slot in range(slots):
            gate = weights["hidden_RD"] @ block.hidden_BRD[row, slot + block.first].double()
            for place in range(count):
                token = int(ids[row, slot, place])
                product = weights["predecessor_VR"][before] * gate * weights["successor_VR"][token]
                rows[row, slot, place] = float(base[row, slot, place]) + float(product.sum())
            before = int(ids[row, slot, choice_BK[row, slot]])
    return rows.log_softmax(dim=-1).float()


@pytest.mark.parametrize("shifted", [True, False])
def test_scores_follow_the_formula(shifted):
    given = drafted(vocab=VOCAB, shifted=shifted)
    module = head(given)
    prepared = module.prepare(given.block, given.borrowed, given.candidates(12))
    choice = random_choices(prepared.candidates)[:, 0]
    expected = naive(module, given, prepared.candidates, choice)
    torch.testing.assert_close(module.block(prepared, choice), expected, rtol=0, atol=CLOSE)
    torch.testing.assert_close(unroll(module, prepared, choice), expected, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("count", [None, 12, 3])
@pytest.mark.parametrize("shifted", [True, False])
def test_contract(shifted, count):
    given = drafted(vocab=VOCAB, shifted=shifted)
    check_contract(head(given), given, count)


@pytest.mark.parametrize("count", [None, 30])
def test_it_narrows_what_it_is_given_to_its_own_number_of_candidates(count):
    given = drafted(vocab=VOCAB)
    prepared = head(given).prepare(given.block, given.borrowed, given.candidates(count))
    expected = given.logits_BKV.sort(dim=-1, descending=True)
    assert torch.equal(prepared.candidates.ids_BKC, expected.indices[..., :TOP_K])
    assert torch.equal(prepared.candidates.base_BKC, expected.values[..., :TOP_K])
    assert torch.equal(prepared.candidates.lse_BK, given.logits_BKV.logsumexp(dim=-1))


def test_a_target_with_few_tokens_offers_all_of_them():
    given = drafted(vocab=7)
    module = randomise(SPEC.new(given.shape))
    prepared = module.prepare(given.block, given.borrowed, given.candidates())
    assert module.support == 7
    assert torch.equal(prepared.candidates.ids_BKC.sort(dim=-1).values, torch.arange(7).expand(2, 5, 7))


def test_a_new_head_draws_what_the_drafter_draws():
    given = drafted(vocab=VOCAB)
    module = SPEC.new(given.shape)
    prepared = module.prepare(given.block, given.borrowed, given.candidates())
    assert torch.equal(grow_chain(module, prepared, 5).tokens_BK, given.logits_BKV.argmax(dim=-1))
    choice = random_choices(prepared.candidates)[:, 0]
    expected = given.logits_BKV.gather(-1, prepared.candidates.ids_BKC).log_softmax(dim=-1)
    torch.testing.assert_close(module.block(prepared, choice), expected)


def test_a_new_head_learns():
    given = drafted(vocab=VOCAB)
    module = SPEC.new(given.shape)
    prepared = module.prepare(given.block, given.borrowed, given.candidates())
    module.block(prepared, random_choices(prepared.candidates)[:, 0])[..., 3].sum().backward()
    assert module.successor_VR.grad.abs().max() > 0


def test_the_slot_layout_matters():
    """Hidden rows that spell the answer draft it all in their own layout, and nothing in the other."""
    slots, vocab = 6, 16
    truth = torch.arange(1, slots + 1)
    rows = (
        torch.nn.functional.one_hot(torch.cat([torch.zeros(1, dtype=torch.int64), truth]), vocab).float() * 9
    )
    accepted = {}
    for first in (1, 0):
        given = drafted(batch=1, slots=slots, width=vocab, vocab=vocab, shifted=False)
        hidden = rows[None, : slots + first]
        block = type(given.block)(
            hidden_BRD=hidden,
            first=first,
            anchor_B=torch.zeros(1, dtype=torch.int64),
            before_B=torch.zeros(1, dtype=torch.int64),
            feature_BD=given.block.feature_BD,
            feature_valid_B=given.block.feature_valid_B,
        )
        candidates = Drafted(block=block, borrowed=given.borrowed, logits_BKV=hidden[:, first:]).candidates()
        module = SPEC.new(given.shape)
        drawn = grow_chain(module, module.prepare(block, given.borrowed, candidates), slots).tokens_BK[0]
        accepted[first] = 1 + int((drawn == truth).int().cumprod(dim=0).sum())
    assert accepted == {1: slots + 1, 0: 1}


def test_a_checkpoint_returns_bit_by_bit_under_its_public_names():
    given = drafted(vocab=VOCAB)
    module = head(given)
    config, tensors = SPEC.save(module)
    assert config == {"selector_rank": RANK, "selector_top_k": TOP_K}
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "candidate_selector.predecessor_codebook": (VOCAB, RANK),
        "candidate_selector.successor_codebook": (VOCAB, RANK),
        "candidate_selector.hidden_projection.weight": (RANK, 12),
    }
    assert SPEC.claims(config, frozenset(tensors))
    source = HeadSource(given.shape, dict(config), dict(tensors))
    again = SPEC.load(source)
    assert not source.config
    assert not source.tensors
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in module.state_dict().items())


def test_codebooks_may_carry_the_suffix_of_an_embedding():
    given = drafted(vocab=VOCAB)
    config, tensors = SPEC.save(head(given))
    renamed = {name + ".weight" * name.endswith("codebook"): tensor for name, tensor in tensors.items()}
    again = SPEC.load(HeadSource(given.shape, dict(config), renamed))
    assert torch.equal(again.successor_VR, tensors["candidate_selector.successor_codebook"])


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("selector_rank", 0, "'selector_rank': got 0, expected more than 0"),
        ("selector_top_k", VOCAB + 1, "'selector_top_k': got 41, expected at most 40"),
        ("selector_rank", "6", "'selector_rank': got '6', expected int"),
        ("selector_rank", RANK + 1, r"predecessor_codebook: got shape \[40, 6\], expected \[40, 7\]"),
        ("selector_top_k", None, "'selector_top_k': missing"),
    ],
)
def test_a_wrong_file_is_one_line_of_error(key, value, expected):
    given = drafted(vocab=VOCAB)
    config, tensors = SPEC.save(head(given))
    if value is None:
        del config[key]
    else:
        config[key] = value
    with pytest.raises(ValueError, match=expected) as error:
        SPEC.load(HeadSource(given.shape, config, dict(tensors)))
    assert "\n" not in str(error.value)


def test_a_missing_tensor_is_named():
    given = drafted(vocab=VOCAB)
    config, tensors = SPEC.save(head(given))
    del tensors["candidate_selector.hidden_projection.weight"]
    with pytest.raises(ValueError, match=r"hidden_projection\.weight: found 0, expected 1"):
        SPEC.load(HeadSource(given.shape, config, tensors))


def test_reset_depends_on_the_generator_alone():
    given = drafted(vocab=VOCAB)
    one, two = SPEC.new(given.shape), SPEC.new(given.shape)
    one.reset(torch.Generator().manual_seed(5))
    torch.manual_seed(1)
    two.reset(torch.Generator().manual_seed(5))
    assert torch.equal(one.predecessor_VR, two.predecessor_VR)
    assert math.isclose(one.predecessor_VR.std().item(), 0.02, rel_tol=0.2)
