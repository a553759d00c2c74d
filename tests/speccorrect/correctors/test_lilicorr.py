"""LiLiCorr: a published golden vector, a naive twin built of torch's own layers, its files."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speccorrect.contract import unroll
from speccorrect.correctors.lilicorr import SPEC, LiLiCorr, LiLiCorrConfig
from speccorrect.grow import grow_chain
from speccorrect.products import Borrowed, Candidates, DraftBlock
from speccorrect.source import HeadShape, HeadSource

from doubles.blocks import CLOSE, Drafted, check_contract, drafted, random_choices, randomise

VOCAB, SLOTS = 23, 5
# the golden numbers are printed with eight digits; the head is summed in another order than theirs
GOLDEN = 2e-6


def head(given: Drafted, **changes) -> LiLiCorr:
    sizes = {
        "top_k": 4,
        "width": 8,
        "factor": 6,
        "num_layers": 2,
        "num_heads": 2,
        "mlp_ratio": 1.5,
        "vector_eps": 1e-4,
        "logit_scale": 8.0,
    }
    return randomise(LiLiCorr(LiLiCorrConfig(shape=given.shape, **(sizes | changes))))


# The wave below is laid over the parameters under these names, whose letters are part of the recipe.
GOLDEN_NAMES = (
    ("feature_mlp.0.", "feature_norm."),
    ("feature_mlp.1.", "feature_mlp.up_proj."),
    ("feature_mlp.3.", "feature_mlp.down_proj."),
    (".mlp.0.", ".mlp.up_proj."),
    (".mlp.2.", ".mlp.down_proj."),
)


def test_golden_vector():
    """TensorRT-LLM's published test of the head (Apache-2.0): parameters from sines, links from the original code."""
    shape = HeadShape(hidden_size=32, vocab_size=16, block_size=4, shifted=False, norm_eps=1e-5)
    config = LiLiCorrConfig(
        shape=shape,
        top_k=3,
        width=8,
        factor=8,
        num_layers=2,
        num_heads=2,
        mlp_ratio=2.0,
        vector_eps=1e-4,
        logit_scale=8.0,
    )
    module = LiLiCorr(config)
    with torch.no_grad():
        for public, tensor in SPEC.save(module)[1].items():
            name = public.removeprefix("lilicorr.")
            for ours, theirs in GOLDEN_NAMES:
                name = name.replace(ours, theirs)
            wave = 0.17 * torch.arange(tensor.numel(), dtype=torch.float32) + 0.013 * sum(name.encode())
            tensor.copy_((0.2 * wave.sin()).view(tensor.shape))
    ids = torch.tensor([[[2, 5, 9], [6, 3, 1], [4, 7, 8]]])
    log_p = torch.tensor([[[-0.4, -1.5, -3.0], [-0.6, -1.7, -2.7], [-0.2, -2.1, -3.4]]])
    rows = torch.linspace(-0.7, 0.9, 96).view(1, 3, 32)
    block = DraftBlock(
        hidden_BRD=torch.cat([torch.zeros(1, 1, 32), rows], dim=1),
        first=1,
        anchor_B=torch.tensor([0]),
        before_B=torch.tensor([0]),
        feature_BD=torch.linspace(-0.5, 0.4, 32)[None],
        feature_valid_B=torch.tensor([True]),
    )
    table = torch.linspace(-1.2, 1.3, 512).view(16, 32)
    prepared = module.prepare(
        block,
        Borrowed(embedding_VD=table, head_VD=table),
        Candidates(ids_BKC=ids, base_BKC=log_p, lse_BK=torch.zeros(1, 3)),
    )
    start = torch.tensor([-2.00565147, -2.00631571, -2.01010752])
    pairs = torch.tensor(
        [
            [
                [1.16437435, 1.16812551, 1.15701485],
                [1.16656375, 1.17030466, 1.15921211],
                [1.17068172, 1.17445230, 1.16334319],
            ],
            [
                [1.14806044, 1.14459574, 1.12698877],
                [1.14481199, 1.14134955, 1.12373281],
                [1.14475155, 1.14125943, 1.12357390],
            ],
        ]
    )
    link = prepared.link_BKCC[0]
    torch.testing.assert_close(link[0], start.log_softmax(dim=-1).expand(3, 3), rtol=0, atol=GOLDEN)
    torch.testing.assert_close(link[1:], pairs.log_softmax(dim=-1), rtol=0, atol=GOLDEN)


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean(dim=-1, keepdim=True) + eps).sqrt() * weight


def naive(module: LiLiCorr, given: Drafted, candidates: Candidates) -> tuple[Tensor, Tensor]:
    """Raw scores of slot 0 `[B, C]` and of all pairs: public names, nn.MultiheadAttention, no shared intermediate."""
    config = module.config
    w = {name.removeprefix("lilicorr."): value.double() for name, value in SPEC.save(module)[1].items()}

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def unit(x: Tensor) -> Tensor:
        return x / x.norm(dim=-1, keepdim=True).clamp(min=config.vector_eps)

    eps, block = config.shape.norm_eps, given.block
    batch, slots, count = candidates.base_BKC.shape
    first, pairs = [], []
    for row in range(batch):
        nodes = []
        for slot in range(slots):
            log_p = (candidates.base_BKC[row, slot] - candidates.lse_BK[row, slot]).double()
            for rank in range(count):
                token = int(candidates.ids_BKC[row, slot, rank])
                embedding = given.borrowed.embedding_VD[token].double()
                x = linear(embedding, "token_proj") if "token_proj.weight" in w else embedding
                x = x + linear(block.hidden_BRD[row, slot + block.first].double(), "pass_hidden_proj")
                feature = torch.stack(
                    [
                        log_p[rank],
                        log_p[rank].exp(),
                        log_p[rank] - log_p.max(),
                        torch.tensor(rank / max(config.top_k - 1, 1)).double(),
                        torch.tensor(float(rank == 0)).double(),
                    ]
                )
                feature = F.layer_norm(feature, (5,), w["feature_mlp.0.weight"], w["feature_mlp.0.bias"])
                x = x + linear(F.silu(linear(feature, "feature_mlp.1")), "feature_mlp.3")
                nodes.append(x + w["slot_embedding"][0, 0, slot, 0] + w["rank_embedding"][0, 0, 0, rank])
        x = torch.stack(nodes)
        slot_of = torch.arange(slots).repeat_interleave(count)
        distance = slot_of[:, None] - slot_of
        bias = w["relative_slot_bias"][:, distance + config.shape.block_size - 1]
        bias = bias + w["same_slot_bias"][:, None, None] * (distance == 0)
        for layer in range(config.num_layers):
            at = f"layers.{layer}."
            attention = nn.MultiheadAttention(config.width, config.num_heads, batch_first=True).double()
            attention.load_state_dict(
                {
                    name: w[f"{at}attn.{name}"]
                    for name in ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
                }
            )
            y = rms(x, w[at + "attn_norm.weight"], eps)[None]
            x = x + attention(y, y, y, attn_mask=bias, need_weights=False)[0][0]
            y = rms(x, w[at + "mlp_norm.weight"], eps)
            x = x + linear(F.silu(linear(y, at + "mlp.0")), at + "mlp.2")
        x = rms(x, w["output_norm.weight"], eps)
        valid = float(block.feature_valid_B[row])
        anchor = rms(
            linear(block.feature_BD[row].double(), "context_proj") * valid, w["anchor_norm.weight"], eps
        )
        wide = torch.cat([x, anchor.expand_as(x), x * anchor], dim=-1)
        y = F.silu(linear(wide, "factor_input_proj"))
        out, into = (unit(linear(y, name)).view(slots, count, -1) for name in ("out_head", "in_head"))
        scale = config.logit_scale
        first.append(into[0] @ unit(linear(anchor, "anchor_out_head")) * scale)
        pairs.append(torch.stack([out[slot] @ into[slot + 1].T * scale for slot in range(slots - 1)]))
    return torch.stack(first), torch.stack(pairs)


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("width", [8, 12])  # 12 is the target's own: no projection of embeddings
def test_scores_equal_a_naive_twin(width, shifted):
    given = drafted(vocab=VOCAB, shifted=shifted)
    module = head(given, width=width)
    prepared = module.prepare(given.block, given.borrowed, given.candidates())
    first, pairs = (raw.log_softmax(dim=-1).float() for raw in naive(module, given, prepared.candidates))
    choice = random_choices(prepared.candidates)[:, 0]
    block = module.block(prepared, choice)
    torch.testing.assert_close(block[:, 0], first, rtol=0, atol=CLOSE)
    for row in range(2):
        for slot in range(1, SLOTS):
            expected = pairs[row, slot - 1, choice[row, slot - 1]]
            torch.testing.assert_close(block[row, slot], expected, rtol=0, atol=CLOSE)
    assert torch.equal(unroll(module, prepared, choice), block)


@pytest.mark.parametrize("count", [None, 12, 3])
@pytest.mark.parametrize("shifted", [True, False])
def test_contract(shifted, count):
    given = drafted(vocab=VOCAB, shifted=shifted)
    check_contract(head(given), given, count)


def test_candidates_are_ranked_whatever_order_they_come_in():
    given = drafted(vocab=VOCAB)
    module = head(given)
    whole = given.candidates(9)
    order = torch.stack([torch.stack([torch.randperm(9) for _ in range(SLOTS)]) for _ in range(2)])
    mixed = Candidates(
        ids_BKC=whole.ids_BKC.gather(-1, order),
        base_BKC=whole.base_BKC.gather(-1, order),
        lse_BK=whole.lse_BK,
    )
    one = module.prepare(given.block, given.borrowed, whole)
    two = module.prepare(given.block, given.borrowed, mixed)
    assert torch.equal(one.candidates.ids_BKC, two.candidates.ids_BKC)
    assert torch.equal(one.link_BKCC, two.link_BKCC)


def test_fewer_candidates_than_trained_keep_the_rank_of_training():
    given = drafted(vocab=VOCAB)
    module = head(given)
    prepared = module.prepare(given.block, given.borrowed, given.candidates(2))
    first, _ = naive(module, given, prepared.candidates)
    torch.testing.assert_close(
        prepared.link_BKCC[:, 0, 0], first.log_softmax(dim=-1).float(), rtol=0, atol=CLOSE
    )


def test_a_padded_candidate_does_not_touch_the_others():
    given = drafted(vocab=VOCAB)
    module = head(given)
    short, padded = given.candidates(3), given.candidates(4)
    padded.base_BKC[..., 3] = float("-inf")
    one = module.prepare(given.block, given.borrowed, short).link_BKCC
    two = module.prepare(given.block, given.borrowed, padded).link_BKCC
    torch.testing.assert_close(one, two[:, :, :3, :3], rtol=0, atol=CLOSE)
    assert (two[..., 3] == float("-inf")).all()


def test_no_feature_before_the_first_token():
    given = drafted(vocab=VOCAB, batch=1)  # whose feature is marked as absent
    module = head(given)
    block = given.block
    loud = DraftBlock(
        hidden_BRD=block.hidden_BRD,
        first=block.first,
        anchor_B=block.anchor_B,
        before_B=block.before_B,
        feature_BD=block.feature_BD * 50,
        feature_valid_B=block.feature_valid_B,
    )
    candidates = given.candidates()
    one = module.prepare(block, given.borrowed, candidates).link_BKCC
    assert torch.equal(one, module.prepare(loud, given.borrowed, candidates).link_BKCC)


def test_scores_stay_within_the_scale():
    given = drafted(vocab=VOCAB)
    module = head(given, logit_scale=3.0)
    link = module.prepare(given.block, given.borrowed, given.candidates()).link_BKCC
    spread = link.amax(dim=-1) - link.amin(dim=-1)
    assert spread.max() <= 6.0 + CLOSE


def test_a_new_head_draws_what_the_drafter_draws_and_learns():
    given = drafted(vocab=VOCAB)
    module = SPEC.new(given.shape)
    prepared = module.prepare(given.block, given.borrowed, given.candidates())
    assert torch.equal(grow_chain(module, prepared, SLOTS).tokens_BK, given.logits_BKV.argmax(dim=-1))
    torch.testing.assert_close(prepared.link_BKCC, torch.full_like(prepared.link_BKCC, -math.log(8)))
    prepared.link_BKCC[..., 2].sum().backward()
    assert torch.linalg.matrix_rank(module.into.weight.grad) > 1
    with torch.no_grad():
        module.into.weight -= 0.01 * module.into.weight.grad
    module.zero_grad()
    module.prepare(given.block, given.borrowed, given.candidates()).link_BKCC[..., 2].sum().backward()
    silent = [name for name, parameter in module.named_parameters() if not parameter.grad.abs().max() > 0]
    assert silent == []


def test_the_slot_layout_matters():
    """Hidden rows that spell the answer draft it all in their own layout, and nothing in the other."""
    slots, vocab = 6, 16
    truth = torch.arange(1, slots + 1)
    rows = F.one_hot(torch.cat([torch.zeros(1, dtype=torch.int64), truth]), vocab).float() * 9
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
        prepared = module.prepare(block, given.borrowed, spelled.candidates())
        drawn = grow_chain(module, prepared, slots).tokens_BK[0]
        accepted[first] = 1 + int((drawn == truth).int().cumprod(dim=0).sum())
    assert accepted == {1: slots + 1, 0: 1}


CONFIG = {
    "lilicorr_candidate_topk": 4,
    "lilicorr_hidden_size": 8,
    "lilicorr_factor_dim": 6,
    "lilicorr_num_layers": 1,
    "lilicorr_num_heads": 2,
    "lilicorr_mlp_ratio": 1.5,
    "lilicorr_vector_eps": 1e-4,
    "lilicorr_logit_scale": 8.0,
}


def linear(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {name + ".weight": (rows, columns), name + ".bias": (rows,)}


SHAPES = {
    **linear("token_proj", 8, 12),
    **linear("pass_hidden_proj", 8, 12),
    **linear("context_proj", 8, 12),
    "feature_mlp.0.weight": (5,),
    "feature_mlp.0.bias": (5,),
    **linear("feature_mlp.1", 8, 5),
    **linear("feature_mlp.3", 8, 8),
    "slot_embedding": (1, 1, SLOTS, 1, 8),
    "rank_embedding": (1, 1, 1, 4, 8),
    "relative_slot_bias": (2, 2 * SLOTS + 1),
    "same_slot_bias": (2,),
    "layers.0.attn_norm.weight": (8,),
    "layers.0.attn.in_proj_weight": (24, 8),
    "layers.0.attn.in_proj_bias": (24,),
    **linear("layers.0.attn.out_proj", 8, 8),
    "layers.0.mlp_norm.weight": (8,),
    **linear("layers.0.mlp.0", 12, 8),
    **linear("layers.0.mlp.2", 8, 12),
    "output_norm.weight": (8,),
    "anchor_norm.weight": (8,),
    **linear("factor_input_proj", 8, 24),
    **linear("out_head", 6, 8),
    **linear("in_head", 6, 8),
    **linear("anchor_out_head", 6, 8),
}


def test_a_checkpoint_returns_bit_by_bit_under_its_public_names():
    given = drafted(vocab=VOCAB, shifted=False)
    module = head(given, num_layers=1)
    config, tensors = SPEC.save(module)
    assert config == CONFIG
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "lilicorr." + name: shape for name, shape in SHAPES.items()
    }
    assert SPEC.claims(config, frozenset(tensors))
    keys = {**config, "lilicorr_enabled": True, "projector_type": "lilicorr"}
    source = HeadSource(given.shape, keys, dict(tensors))
    again = SPEC.load(source)
    assert not source.config
    assert not source.tensors
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in module.state_dict().items())


def test_a_head_of_the_targets_width_has_no_projection_of_embeddings():
    given = drafted(vocab=VOCAB)
    module = head(given, width=12)
    config, tensors = SPEC.save(module)
    assert not [name for name in tensors if "token_proj" in name]
    again = SPEC.load(HeadSource(given.shape, {**config, "lilicorr_hidden_size": 0}, dict(tensors)))
    assert again.config == module.config


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        *((key, None, f"'{key}': missing") for key in CONFIG),
        ("lilicorr_logit_scale", 0.0, "'lilicorr_logit_scale': got 0.0, expected more than 0"),
        ("lilicorr_num_heads", 3, "'lilicorr_hidden_size': got 8, expected a multiple of 3 heads"),
        ("lilicorr_candidate_topk", 99, "'lilicorr_candidate_topk': got 99, expected at most 23"),
        ("lilicorr_enabled", False, "'lilicorr_enabled': got False, expected True"),
        ("projector_type", "domino", "'projector_type': got 'domino', expected 'lilicorr'"),
        ("lilicorr_factor_dim", 7, r"out_head.weight: got shape \[6, 8\], expected \[7, 8\]"),
    ],
)
def test_a_wrong_file_is_one_line_of_error(key, value, expected):
    given = drafted(vocab=VOCAB)
    config, tensors = SPEC.save(head(given, num_layers=1))
    config[key] = value
    if value is None:
        del config[key]
    with pytest.raises(ValueError, match=expected) as error:
        SPEC.load(HeadSource(given.shape, config, dict(tensors)))
    assert "\n" not in str(error.value)
