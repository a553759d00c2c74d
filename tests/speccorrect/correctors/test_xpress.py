"""xPress: the formula row by row, Jacobi against the chain, its files in both spellings."""

import pytest
import torch
from torch import Tensor

from speccorrect.contract import unroll
from speccorrect.correctors.xpress import SPEC, XPress, XPressConfig
from speccorrect.grow import TreeShape, grow_chain, grow_tree
from speccorrect.products import Candidates, DraftBlock
from speccorrect.source import HeadSource

from doubles.blocks import CLOSE, Drafted, check_contract, drafted, random_choices, randomise

VOCAB, RANK, INNER, SLOTS = 23, 6, 9, 5


def head(given: Drafted, passes: int = SLOTS) -> XPress:
    config = XPressConfig(shape=given.shape, rank=RANK, mlp_width=INNER, passes=passes)
    return randomise(XPress(config), scale=0.3)


def prepared_of(module: XPress, given: Drafted, count: int | None = None):
    return module.prepare(given.block, given.borrowed, given.candidates(count))


def naive(module: XPress, given: Drafted, tokens_BK: Tensor) -> Tensor:
    """Log-probabilities `[B, K, V]` along a path: loops over rows, channels apart, in double precision."""
    w = {name: tensor.double() for name, tensor in module.state_dict().items()}
    block, first = given.block, given.block.first
    batch, slots = tokens_BK.shape
    out = torch.zeros(batch, slots, VOCAB, dtype=torch.float64)
    for row in range(batch):
        hidden = block.hidden_BRD[row].double()
        mean = sum(hidden) / len(hidden)
        path = [int(block.anchor_B[row]), *tokens_BK[row].tolist()]
        if first:
            path.insert(0, int(block.before_B[row]))
        inputs = []
        for place in range(slots + first):
            parts = [w["hidden_RD"] @ hidden[place], w["mean_RD"] @ mean, w["token_VR"][path[place]]]
            inputs.append(w["input_weight"] @ torch.cat(parts))
        for slot in range(slots):
            k = slot + first
            mixed = inputs[k] + sum(w["mixer_RQQ"][:, k, j] * inputs[j] for j in range(k + 1))
            gate, up = w["gate_weight"] @ mixed, w["up_weight"] @ mixed
            y = mixed + w["down_weight"] @ (gate / (1 + (-gate).exp()) * up)
            out[row, slot] = given.logits_BKV[row, slot].double() + w["readout_VR"] @ y
    return out.log_softmax(dim=-1).float()


@pytest.mark.parametrize("shifted", [True, False])
def test_scores_follow_the_formula(shifted):
    given = drafted(vocab=VOCAB, shifted=shifted)
    module = head(given)
    prepared = prepared_of(module, given)
    tokens = random_choices(prepared.candidates)[:, 0]
    expected = naive(module, given, tokens)
    torch.testing.assert_close(module.block(prepared, tokens), expected, rtol=CLOSE, atol=CLOSE)
    torch.testing.assert_close(unroll(module, prepared, tokens), expected, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("count", [None, 7])
def test_listed_candidates_share_the_whole_vocabularys_scores_but_for_the_normaliser(count):
    given = drafted(vocab=VOCAB)
    module = head(given)
    prepared = prepared_of(module, given, count)
    choice = random_choices(prepared.candidates)[:, 0]
    ids = prepared.candidates.ids_BKC
    tokens = choice if ids is None else ids.gather(-1, choice[..., None]).squeeze(-1)
    expected = naive(module, given, tokens)
    if ids is not None:
        expected = expected.gather(-1, ids).log_softmax(dim=-1)
    torch.testing.assert_close(module.block(prepared, choice), expected, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("count", [None, 12, 3])
@pytest.mark.parametrize("shifted", [True, False])
def test_contract(shifted, count):
    given = drafted(vocab=VOCAB, shifted=shifted)
    check_contract(head(given), given, count)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("shifted", [True, False])
def test_jacobi_with_as_many_passes_as_slots_draws_the_chain(shifted, noisy):
    for seed in range(10):
        given = drafted(seed, vocab=VOCAB, shifted=shifted)
        module = head(given)
        prepared = prepared_of(module, given, 12)
        noise = -(-torch.rand(2, SLOTS, 12, dtype=torch.float64).log()).log() * 0.7 if noisy else None
        jacobi = grow_chain(module, prepared, SLOTS, noise)
        module.passes = None
        chain = grow_chain(module, prepared, SLOTS, noise)
        assert torch.equal(jacobi.tokens_BK, chain.tokens_BK)
        torch.testing.assert_close(jacobi.scores_BKC, chain.scores_BKC, rtol=CLOSE, atol=CLOSE)


def test_few_passes_return_the_rows_that_the_last_of_them_picked_from():
    given = drafted(vocab=VOCAB)
    module = head(given, passes=2)
    prepared = prepared_of(module, given, 12)
    noise = -(-torch.rand(2, SLOTS, 12, dtype=torch.float64).log()).log()
    proposal = grow_chain(module, prepared, SLOTS, noise)
    seed = (prepared.candidates.base_BKC + noise).argmax(dim=-1)
    once = (module.block(prepared, seed) + noise).argmax(dim=-1)
    assert torch.equal(proposal.scores_BKC, module.block(prepared, once))
    assert torch.equal(proposal.choice_BK, (proposal.scores_BKC + noise).argmax(dim=-1))


def test_more_passes_than_slots_are_not_made():
    given = drafted(vocab=VOCAB)
    module = head(given, passes=50)
    assert module.passes == SLOTS
    assert SPEC.save(module)[0]["xpress_num_passes"] == 50


def test_a_token_reaches_later_slots_only():
    given = drafted(vocab=VOCAB)
    module = head(given)
    prepared = prepared_of(module, given)
    tokens = random_choices(prepared.candidates)[:, 0]
    for slot in range(SLOTS):
        other = tokens.clone()
        other[:, slot] = (other[:, slot] + 1) % VOCAB
        same = (module.block(prepared, tokens) == module.block(prepared, other)).all(dim=-1).all(dim=0)
        assert same.tolist() == [place <= slot for place in range(SLOTS)]


def test_a_shorter_chain_is_a_prefix():
    given = drafted(vocab=VOCAB, shifted=False)
    module = head(given)
    prepared = prepared_of(module, given, 12)
    choice = random_choices(prepared.candidates)[:, 0]
    short = module.block(prepared, choice[:, :2])
    torch.testing.assert_close(short, module.block(prepared, choice)[:, :2], rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("shifted", [True, False])
def test_the_token_before_the_anchor_counts_in_the_fill_in_layout_alone(shifted):
    given = drafted(vocab=VOCAB, shifted=shifted)
    module = head(given)
    block = given.block
    moved = DraftBlock(
        hidden_BRD=block.hidden_BRD,
        first=block.first,
        anchor_B=block.anchor_B,
        before_B=(block.before_B + 1) % VOCAB,
        feature_BD=block.feature_BD,
        feature_valid_B=block.feature_valid_B,
    )
    candidates = given.candidates()
    choice = random_choices(candidates)[:, 0]
    one = module.block(module.prepare(block, given.borrowed, candidates), choice)
    two = module.block(module.prepare(moved, given.borrowed, candidates), choice)
    assert torch.equal(one, two) is shifted


def test_the_mixer_is_folded_once_and_stays_as_it_was_trained():
    given = drafted(vocab=VOCAB)
    module = head(given)
    before = module.mixer_RQQ.clone()
    first, second = prepared_of(module, given), prepared_of(module, given)
    assert torch.equal(module.mixer_RQQ, before)
    assert torch.equal(first.mixer_QQR, second.mixer_QQR)
    for channel in range(RANK):
        for k in range(SLOTS):
            for j in range(SLOTS):
                expected = before[channel, k, j] * (j <= k) + (j == k)
                assert first.mixer_QQR[k, j, channel] == expected


def test_a_new_head_scores_as_the_drafter():
    given = drafted(vocab=VOCAB)
    module = SPEC.new(given.shape)
    prepared = prepared_of(module, given)
    choice = random_choices(prepared.candidates)[:, 0]
    assert torch.equal(module.block(prepared, choice), given.logits_BKV.log_softmax(dim=-1))
    module.block(prepared, choice)[..., 3].sum().backward()
    assert module.readout_VR.grad.abs().max() > 0


def test_the_slot_layout_matters():
    """Hidden rows that spell the answer draft it all in their own layout, and nothing in the other."""
    slots, vocab = 6, 16
    truth = torch.arange(1, slots + 1)
    rows = (
        torch.nn.functional.one_hot(torch.cat([torch.zeros(1, dtype=torch.int64), truth]), vocab).float() * 9
    )
    accepted = {}
    for first in (1, 0):
        given = drafted(batch=1, slots=slots, width=vocab, vocab=vocab, shifted=first == 0)
        block = DraftBlock(
            hidden_BRD=rows[None, : slots + first],
            first=first,
            anchor_B=torch.zeros(1, dtype=torch.int64),
            before_B=torch.zeros(1, dtype=torch.int64),
            feature_BD=given.block.feature_BD,
            feature_valid_B=given.block.feature_valid_B,
        )
        spelled = Drafted(block=block, borrowed=given.borrowed, logits_BKV=block.rows_BKD)
        module = SPEC.new(spelled.shape)
        drawn = grow_chain(module, prepared_of(module, spelled), slots).tokens_BK[0]
        accepted[first] = 1 + int((drawn == truth).int().cumprod(dim=0).sum())
    assert accepted == {1: slots + 1, 0: 1}


def test_a_trees_nodes_score_as_their_own_paths_do():
    given = drafted(vocab=VOCAB, shifted=False)
    module = head(given)
    prepared = prepared_of(module, given)
    tree = grow_tree(module, prepared, given.block.anchor_B, SLOTS, TreeShape(nodes=12, lanes=12, ledger=12))
    for row in range(2):
        for node in range(1, 13):
            path, place = [], node
            while place:
                path.insert(0, int(tree.tokens_BN[row, place]))
                place = int(tree.parent_BN[row, place])
            tokens = torch.zeros(2, SLOTS, dtype=torch.int64)
            tokens[row, : len(path)] = torch.tensor(path)
            rows = naive(module, given, tokens)[row]
            expected = sum(rows[depth, token] for depth, token in enumerate(path))
            torch.testing.assert_close(tree.score_BN[row, node], expected, rtol=CLOSE, atol=CLOSE)


SHAPES = {
    "xpress_head.w1.weight": (VOCAB, RANK),
    "xpress_head.w2.weight": (VOCAB, RANK),
    "xpress_head.down_h.weight": (RANK, 12),
    "xpress_head.down_g.weight": (RANK, 12),
    "xpress_head.in_proj.weight": (RANK, 3 * RANK),
    "xpress_head.mix.L": (RANK, SLOTS, SLOTS),
    "xpress_head.mlp.gate_proj.weight": (INNER, RANK),
    "xpress_head.mlp.up_proj.weight": (INNER, RANK),
    "xpress_head.mlp.down_proj.weight": (RANK, INNER),
}
SPECULATORS = (
    "token_embed.weight readout.weight down_h.weight down_g.weight in_proj.weight mix_l mlp_gate.weight "
    "mlp_up.weight mlp_down.weight"
).split()


def test_a_checkpoint_returns_bit_by_bit_under_its_public_names():
    given = drafted(vocab=VOCAB)
    module = head(given, passes=4)
    config, tensors = SPEC.save(module)
    assert config == {"xpress_rank": RANK, "xpress_mlp_hidden": INNER, "xpress_num_passes": 4}
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == SHAPES
    assert SPEC.claims(config, frozenset(tensors))
    source = HeadSource(
        given.shape,
        {**config, "xpress_block_size": SLOTS, "xpress_topc": 512, "xpress_compile_head": True},
        dict(tensors),
    )
    again = SPEC.load(source)
    assert not source.config
    assert not source.tensors
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in module.state_dict().items())


def test_the_spelling_of_speculators_is_read_too():
    given = drafted(vocab=VOCAB)
    shape = given.shape
    module = randomise(XPress(XPressConfig(shape=shape, rank=RANK, mlp_width=2 * RANK, passes=3)))
    tensors = {
        "refiner_head." + theirs: tensor
        for theirs, tensor in zip(SPECULATORS, SPEC.save(module)[1].values(), strict=True)
    }
    assert SPEC.claims({}, frozenset(tensors))
    source = HeadSource(shape, {"xpress_rank": RANK, "xpress_mlp_ratio": 2, "num_jacobi_passes": 3}, tensors)
    again = SPEC.load(source)
    assert not source.config
    assert not source.tensors
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in module.state_dict().items())


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("xpress_num_passes", 0, "'xpress_num_passes': got 0, expected more than 0"),
        ("xpress_rank", None, "'xpress_rank': missing"),
        ("xpress_block_size", 7, "'xpress_block_size': got 7, expected 5"),
        ("xpress_rank", 7, r"w1.weight: got shape \[23, 6\], expected \[23, 7\]"),
    ],
)
def test_a_wrong_file_is_one_line_of_error(key, value, expected):
    given = drafted(vocab=VOCAB)
    config, tensors = SPEC.save(head(given))
    config[key] = value
    if value is None:
        del config[key]
    with pytest.raises(ValueError, match=expected) as error:
        SPEC.load(HeadSource(given.shape, config, dict(tensors)))
    assert "\n" not in str(error.value)


def test_candidates_of_one_are_certain():
    given = drafted(vocab=VOCAB)
    module = head(given)
    whole = given.candidates(1)
    prepared = module.prepare(
        given.block,
        given.borrowed,
        Candidates(ids_BKC=whole.ids_BKC, base_BKC=whole.base_BKC, lse_BK=whole.lse_BK),
    )
    assert torch.equal(
        module.block(prepared, torch.zeros(2, SLOTS, dtype=torch.int64)), torch.zeros(2, SLOTS, 1)
    )
