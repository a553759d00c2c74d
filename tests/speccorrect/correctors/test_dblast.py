"""DBLAST against enumeration of its latent categories, soft and as branches."""

import itertools

import pytest
import torch

from speccorrect.contract import unroll
from speccorrect.correctors.dblast import SPEC, Dblast, DblastConfig
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

RANKS = [None, 3]


def head(drafting: str = "soft", rank: int | None = None, categories: int = 4, **changed) -> Dblast:
    sizes = {"hidden_size": 12, "temperature": 0.8, **changed}
    return randomise(Dblast(DblastConfig(categories=categories, rank=rank, drafting=drafting, **sizes)))


@torch.no_grad()
def parts(module: Dblast, made) -> tuple[torch.Tensor, torch.Tensor]:
    """Prior `[B, Z]` and probabilities `[B, Z, K, V]` of every category, one at a time."""
    state, config = module.state_dict(), module.config
    logits = made.block.hidden_BRD[:, 0] @ state["prior"].T + state["prior_bias"]
    each = [made.logits_BKV.softmax(dim=-1)]
    for z in range(config.categories - 1):
        rows = slice(z * config.hidden_size, (z + 1) * config.hidden_size)
        hidden = made.block.rows_BKD
        seen = hidden if config.rank is None else hidden @ state["narrow"].T
        moved = hidden + seen @ state["expand"][rows].T + state["expand_bias"][rows]
        each.append((moved @ made.borrowed.head_VD.T).softmax(dim=-1))
    return (logits / config.temperature).softmax(dim=-1), torch.stack(each, dim=1)


def predictive(prior_Z: torch.Tensor, parts_ZKV: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """Row of the slot behind `tokens`: joint mass with one more token over the mass without it."""
    mass = prior_Z.double()
    for k, token in enumerate(tokens):
        mass = mass * parts_ZKV[:, k, token].double()
    return (mass[:, None] * parts_ZKV[:, len(tokens)].double()).sum(dim=0) / mass.sum()


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("rank", RANKS)
def test_soft_equals_enumeration_over_the_categories(rank, shifted):
    made, module = drafted(shifted=shifted), head(rank=rank)
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    token = random_choices(prepared.candidates)[:, 0]
    prior, each = parts(module, made)
    found = module.block(prepared, token)
    for b, k in itertools.product(range(token.shape[0]), range(token.shape[1])):
        expected = predictive(prior[b], each[b], token[b, :k].tolist()).log().float()
        torch.testing.assert_close(found[b, k], expected, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("rank", RANKS)
def test_hard_equals_brute_force_over_the_branches(rank):
    """Follow every branch, and leave it: rows are the mass of the branches that agree so far."""
    made, module = drafted(vocab=5, batch=3), head("hard", rank)
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    ids = prepared.candidates.ids_BKC
    prior, each = parts(module, made)
    branch = each.argmax(dim=-1)
    for z in range(4):
        choice = (ids == branch[:, z, :, None]).int().argmax(dim=-1)
        found = unroll(module, prepared, choice).exp().detach()
        for b, k in itertools.product(range(3), range(5)):
            agree = (branch[b, :, :k] == branch[b, z, :k]).all(dim=-1)
            mass = torch.zeros(5)
            for other in range(4):
                mass[branch[b, other, k]] += prior[b, other] * agree[other] / (prior[b] * agree).sum()
            got = torch.zeros(5).scatter_add(0, ids[b, k], found[b, k])
            torch.testing.assert_close(got, mass, rtol=0, atol=CLOSE)
            assert float(found[b, k].sum()) == pytest.approx(1, abs=CLOSE)


def test_branches_that_agree_are_offered_once():
    made = drafted()
    module = head("hard")
    with torch.no_grad():
        module.expand.zero_()
        module.expand_bias.zero_()
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    rows = module.block(prepared, torch.zeros(2, 5, dtype=torch.int64))
    assert torch.equal(prepared.candidates.ids_BKC[..., 0], made.logits_BKV.argmax(dim=-1))
    torch.testing.assert_close(rows[..., 0], torch.zeros(2, 5), rtol=0, atol=CLOSE)
    assert (rows[..., 1:] == float("-inf")).all()
    assert (prepared.candidates.base_BKC[..., 1:] == float("-inf")).all()


@pytest.mark.parametrize("drafting", ["soft", "hard"])
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("count", [None, 8])
def test_keeps_the_contract(drafting, rank, count):
    check_contract(head(drafting, rank), drafted(shifted=False), count)


def test_the_joint_sums_to_one():
    made, module = drafted(batch=1, slots=3, vocab=4), head()
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    total = 0.0
    for path in itertools.product(range(4), repeat=3):
        choice = torch.tensor([path])
        total += module.block(prepared, choice).gather(-1, choice[..., None]).sum().exp().item()
    assert total == pytest.approx(1, abs=CLOSE)


def test_a_single_category_is_the_drafter():
    made, module = drafted(), head(categories=1)
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    rows = module.block(prepared, random_choices(prepared.candidates)[:, 0])
    torch.testing.assert_close(rows, made.logits_BKV.log_softmax(dim=-1), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("rank", RANKS)
def test_starts_as_no_correction_with_categories_that_can_part(rank):
    made, module = drafted(), head(rank=rank)
    module.reset(torch.Generator().manual_seed(0))
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    token = random_choices(prepared.candidates)[:, 0]
    rows = module.block(prepared, token)
    torch.testing.assert_close(rows, made.logits_BKV.log_softmax(dim=-1), rtol=0, atol=CLOSE)
    rows.gather(-1, token[..., None]).sum().backward()
    moves = module.expand.grad.view(3, -1)
    assert (moves[0] - moves[1]).abs().max() > 1e-3


def keys_of(rank: int | None) -> dict:
    ranked = {} if rank is None else {"rank": rank}
    return {"dblast": {"categories": 4, **ranked, "drafting": "soft", "prior_temperature": 0.75}}


@pytest.mark.parametrize("rank", RANKS)
def test_names_and_shapes(rank):
    shapes = {
        "dblast.prior": (4, 12),
        "dblast.prior_bias": (4,),
        "dblast.expand": (36, 12 if rank is None else rank),
        "dblast.expand_bias": (36,),
    }
    if rank is not None:
        shapes["dblast.narrow"] = (rank, 12)
    check_checkpoint(SPEC, drafted().shape, keys_of(rank), shapes, saved=keys_of(rank))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"categories": 0}, "categories"),
        ({"drafting": "medium"}, "drafting"),
        ({"prior_temperature": 0.0}, "at 0.0"),
        ({"stranger": 1}, "stranger"),
    ],
)
def test_a_wrong_key_is_named(change, said):
    keys, tensors = SPEC.save(head())
    config = {"dblast": keys["dblast"] | change}
    check_refused(SPEC, HeadSource(shape=drafted().shape, config=config, tensors=dict(tensors)), said)


@pytest.mark.parametrize("drafting", ["soft", "hard"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_wrong_slot_layout_shows(drafting, first):
    shape = HeadShape(hidden_size=11, vocab_size=11, block_size=6, shifted=first == 0)
    module = Dblast(
        DblastConfig(
            hidden_size=shape.hidden_size, categories=4, rank=None, drafting=drafting, temperature=1.0
        )
    )
    module.reset(torch.Generator().manual_seed(0))
    assert tokens_per_round(module, counting(one_hot_rows, 5, first=first, right=True)) == 6
    assert tokens_per_round(module, counting(one_hot_rows, 5, first=first, right=False)) == 1
