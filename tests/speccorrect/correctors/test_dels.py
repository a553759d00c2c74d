"""DeLS-Spec against the library's GRU and plain tables, and its public files."""

import pytest
import torch
from torch import nn

from speccorrect.correctors.dels import HEAD, SPEC, TENSORS, UNIGRAM, DeLS, DeLSConfig, convert_pt
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

VARIANTS = sorted(TENSORS)
WEIGHTS = {"scalar": ((0.3,), (0.5,)), "per slot": ((0.1, 0.9, 0.3, 0.6), (0.8, 0.2, 0.5, 0.4))}


def config(kind: str, tables: str, **changed) -> DeLSConfig:
    sizes = {
        "hidden_size": 12,
        "vocab_size": 23,
        "gru_size": 7 if kind == "rnn" else 0,
        "rank": 5,
        "activation": "silu" if kind == "rnn" else "identity",
        "plain_slots": 1,
        "alpha": (0.3,),
        "beta": (0.5,),
        "smoothing": 1.0,
        "shifted": True,
    }
    return DeLSConfig(kind=kind, tables=tables, **{**sizes, **changed})


def head(kind: str, tables: str, **changed) -> DeLS:
    module = randomise(DeLS(config(kind, tables, **changed)))
    module.counts.copy_(torch.arange(23) ** 2 % 50)
    return module


@torch.no_grad()
def naive(module: DeLS, made, token_BK: torch.Tensor) -> torch.Tensor:
    """The whole vocabulary, tables multiplied out, the GRU run anew over the drafted tokens of every slot."""
    config, state = module.config, module.state_dict()
    embedding, head = made.borrowed.embedding_VD, made.borrowed.head_VD
    weights = (state["counts"].double() + config.smoothing) / (
        state["counts"].double() + config.smoothing
    ).sum()
    rows = []
    for k in range(token_BK.shape[1]):
        logits = made.logits_BKV[:, k]
        if k >= config.plain_slots:
            if config.kind == "rnn":
                gru = nn.GRU(config.hidden_size, config.gru_size, batch_first=True, bias=False)
                gru.load_state_dict(
                    {
                        "weight_ih_l0": state["memory.input_weight"],
                        "weight_hh_l0": state["memory.state_weight"],
                    }
                )
                known = gru(embedding[token_BK[:, :k]])[0][:, -1] @ state["narrow"].T
                known = nn.functional.silu(known) if config.activation == "silu" else known
                table = state["readout"] if config.tables == "low_rank" else head @ state["widen"]
            else:
                own = config.tables == "low_rank"
                known = (state["previous"] if own else embedding @ state["narrow"])[token_BK[:, k - 1]]
                table = state["readout"] if own else head @ state["widen"].T
            slot = k - config.plain_slots
            alpha = config.alpha[slot if len(config.alpha) > 1 else 0]
            beta = config.beta[slot if len(config.beta) > 1 else 0]
            logits = logits + alpha * (known @ table.T) - beta * weights.log().float()
        rows.append(logits.log_softmax(dim=-1))
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("kind", "tables"), VARIANTS)
def test_equals_the_equations(kind, tables, weights, shifted):
    alpha, beta = WEIGHTS[weights]
    made, module = drafted(shifted=shifted), head(kind, tables, alpha=alpha, beta=beta)
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    token = random_choices(prepared.candidates)[:, 0]
    torch.testing.assert_close(module.block(prepared, token), naive(module, made, token), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("plain_slots", [2, 9])
def test_more_slots_may_stay_plain(plain_slots):
    made, module = drafted(), head("rnn", "low_rank", plain_slots=plain_slots, activation="identity")
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    token = random_choices(prepared.candidates)[:, 0]
    torch.testing.assert_close(module.block(prepared, token), naive(module, made, token), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("kind", "tables"), VARIANTS)
@pytest.mark.parametrize("count", [None, 8])
def test_keeps_the_contract(kind, tables, weights, count):
    alpha, beta = WEIGHTS[weights]
    check_contract(head(kind, tables, alpha=alpha, beta=beta), drafted(shifted=False), count)


def test_without_weights_it_is_the_drafter_and_the_first_slot_always_is():
    made = drafted()
    plain = made.logits_BKV.log_softmax(dim=-1)
    for weight in (0.0, 0.7):
        module = head("rnn", "low_rank", alpha=(weight,), beta=(weight,))
        prepared = module.prepare(made.block, made.borrowed, made.candidates())
        rows = module.block(prepared, random_choices(prepared.candidates)[:, 0])
        torch.testing.assert_close(rows[:, :1], plain[:, :1], rtol=0, atol=CLOSE)
        assert torch.allclose(rows[:, 1:], plain[:, 1:], rtol=0, atol=CLOSE) is (weight == 0.0)


@pytest.mark.parametrize(("kind", "tables"), VARIANTS)
def test_starts_as_no_correction(kind, tables):
    made, module = drafted(), DeLS(config(kind, tables))
    module.reset(torch.Generator().manual_seed(0))
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    rows = module.block(prepared, random_choices(prepared.candidates)[:, 0])
    torch.testing.assert_close(rows, made.logits_BKV.log_softmax(dim=-1), rtol=0, atol=CLOSE)


def test_the_local_model_alone_is_what_the_block_adds():
    made, module = drafted(), head("rnn", "low_rank", alpha=(1.0,), beta=(0.0,))
    prepared = module.prepare(made.block, made.borrowed, made.candidates())
    token = random_choices(prepared.candidates)[:, 0]
    local = module.local_logits(prepared, token)
    expected = (made.logits_BKV + local).log_softmax(dim=-1)[:, 1:]
    torch.testing.assert_close(module.block(prepared, token)[:, 1:], expected, rtol=0, atol=CLOSE)


def test_observed_tokens_become_counts():
    module = DeLS(config("rnn", "low_rank"))
    module.reset(torch.Generator().manual_seed(0))
    module.observe(torch.tensor([[1, 2, 2], [22, 1, 2]]))
    assert module.counts[[0, 1, 2, 22]].tolist() == [0, 2, 3, 1]


SHAPE = HeadShape(hidden_size=12, vocab_size=23, block_size=5, shifted=True)
INSIDE = {
    ("rnn", "low_rank"): {
        "prefix_gru.weight_ih_l0": (21, 12),
        "prefix_gru.weight_hh_l0": (21, 7),
        "rank_proj.weight": (5, 7),
        "low_rank_lm_head.weight": (23, 5),
    },
    ("rnn", "target_lm_head"): {
        "prefix_gru.weight_ih_l0": (21, 12),
        "prefix_gru.weight_hh_l0": (21, 7),
        "rank_proj.weight": (5, 7),
        "rank_to_hidden.weight": (12, 5),
    },
    ("markov", "low_rank"): {"embedding_weight": (23, 5), "lm_head_weight": (23, 5)},
    ("markov", "target_lm_head"): {"down_proj": (12, 5), "up_proj": (5, 12)},
}
MODEL_CONFIG = {
    "vocab_size": 23,
    "embed_dim": 12,
    "gru_hidden_dim": 7,
    "low_rank_dim": 5,
    "rank_activation": "silu",
    "pure_draft_prefix_len": 1,
    "shift_label": True,
}


def keys_of(kind: str, tables: str) -> dict:
    keys = {
        **MODEL_CONFIG,
        "local_head_type": kind,
        "lm_head_mode": tables,
        "alpha": 0.3,
        "beta": [0.25, 0.5, 0.125, 1.0],
        "unigram_smoothing": 1.0,
    }
    if kind == "markov":
        del keys["gru_hidden_dim"]
        keys["rank_activation"] = "identity"
    return keys


@pytest.mark.parametrize(("kind", "tables"), VARIANTS)
def test_public_names_and_shapes(kind, tables):
    keys = {HEAD: keys_of(kind, tables)}
    shapes = {f"{HEAD}.{name}": size for name, size in INSIDE[kind, tables].items()} | {UNIGRAM: (23,)}
    check_checkpoint(SPEC, SHAPE, keys, shapes, saved=keys)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vocab_size": 24}, "vocab_size"),
        ({"embed_dim": 13}, "embed_dim"),
        ({"shift_label": False}, "shift_label"),
        ({"pure_draft_prefix_len": 0}, "pure_draft_prefix_len"),
        ({"lm_head_mode": "tied"}, "lm_head_mode"),
        ({"rank_activation": "relu"}, "rank_activation"),
        ({"alpha": [0.3, 0.3]}, "alpha"),
        ({"beta": "much"}, "beta"),
        ({"unigram_smoothing": 0.0}, "unigram_smoothing"),
        ({"temper": 1}, "temper"),
    ],
)
def test_a_wrong_key_is_named(change, said):
    keys, tensors = SPEC.save(head("rnn", "low_rank"))
    check_refused(
        SPEC, HeadSource(shape=SHAPE, config={HEAD: keys[HEAD] | change}, tensors=dict(tensors)), said
    )


@pytest.mark.parametrize(("kind", "tables"), VARIANTS)
def test_the_authors_files_convert(tmp_path, kind, tables):
    inside = {name: torch.randn(size) for name, size in INSIDE[kind, tables].items()}
    # merged Markov tables come as they are, everything else inside a training state with the frozen embedding
    stored = inside
    if (kind, tables) != ("markov", "low_rank"):
        model_config = MODEL_CONFIG | {"lm_head_mode": tables} if kind == "rnn" else {"shift_label": True}
        stored = {
            "model_config": model_config,
            "model_state_dict": inside | {"embedding.weight": torch.randn(23, 12)},
            "step": 7,
        }
    torch.save(stored, tmp_path / "local_head.pt")
    torch.save({"counts": torch.arange(20)}, tmp_path / "loss_mask_unigram.pt")
    config, tensors = convert_pt(
        tmp_path / "local_head.pt", tmp_path / "loss_mask_unigram.pt", vocab_size=23, shifted=True
    )
    source = HeadSource(shape=SHAPE, config=config, tensors=tensors)
    name, module = claim_head(source)
    assert name == "dels"
    assert not source.config
    assert not source.tensors
    assert (module.config.kind, module.config.tables) == (kind, tables)
    assert (module.config.alpha, module.config.beta) == ((0.3,), (0.3,))
    assert module.counts.tolist() == [*range(20), 0, 0, 0]
    state = module.state_dict()
    assert all(torch.equal(state[ours], inside[theirs]) for ours, theirs in TENSORS[kind, tables].items())


def converted(folder, head: dict, counts: torch.Tensor):
    torch.save(head, folder / "local_head.pt")
    torch.save({"counts": counts}, folder / "loss_mask_unigram.pt")
    return convert_pt(folder / "local_head.pt", folder / "loss_mask_unigram.pt", vocab_size=23, shifted=True)


def test_tuned_gates_become_weights_per_slot(tmp_path):
    gates = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8]])
    inside = {name: torch.randn(size) for name, size in INSIDE["rnn", "low_rank"].items()}
    stored = {"model_config": MODEL_CONFIG, "model_state_dict": inside | {"position_gates": gates}}
    config, tensors = converted(tmp_path, stored, torch.arange(23))
    module = SPEC.load(HeadSource(shape=SHAPE, config=config, tensors=tensors))
    assert torch.tensor([module.config.alpha, module.config.beta]).T.tolist() == gates.tolist()


def test_files_that_are_no_local_head_are_named(tmp_path):
    merged = {name: torch.randn(size) for name, size in INSIDE["markov", "low_rank"].items()}
    with pytest.raises(ValueError, match="24 counts, expected at most 23"):
        converted(tmp_path, merged, torch.arange(24))
    with pytest.raises(ValueError, match="none below 0"):
        converted(tmp_path, merged, torch.arange(23) - 1)
    with pytest.raises(ValueError, match="expected those of one local head"):
        converted(tmp_path, {"weight": torch.ones(2)}, torch.arange(23))
    with pytest.raises(ValueError, match="unknown tensors stranger"):
        converted(tmp_path, merged | {"stranger": torch.ones(2)}, torch.arange(23))
    with pytest.raises(ValueError, match="vocabulary of 24"):
        converted(
            tmp_path, {"model_config": {"vocab_size": 24}, "model_state_dict": merged}, torch.arange(23)
        )


@pytest.mark.parametrize("first", [0, 1])
def test_a_wrong_slot_layout_shows(first):
    module = SPEC.new(HeadShape(hidden_size=11, vocab_size=11, block_size=6, shifted=first == 0))
    assert tokens_per_round(module, counting(one_hot_rows, 5, first=first, right=True)) == 6
    assert tokens_per_round(module, counting(one_hot_rows, 5, first=first, right=False)) == 1


@pytest.mark.parametrize("kind", ["rnn", "markov"])
@pytest.mark.parametrize("first", [0, 1])
def test_the_drafted_token_reaches_the_next_slot(kind, first):
    """A drafter that knows its first token only, and a local model set by hand to say "plus 1", draft a whole block."""
    vocab = 11

    def first_row_only(spoken: torch.Tensor) -> torch.Tensor:
        rows = one_hot_rows(spoken, vocab)
        rows[:, first + 1 :] = 0
        return rows

    made = counting(first_row_only, 5, first=first, right=True, vocab=vocab)
    sizes = {
        "hidden_size": vocab,
        "vocab_size": vocab,
        "rank": vocab,
        "gru_size": vocab if kind == "rnn" else 0,
    }
    module = DeLS(config(kind, "low_rank", activation="identity", alpha=(1.0,), **sizes))
    eye, none = torch.eye(vocab), torch.zeros(vocab, vocab)
    with torch.no_grad():
        module.readout.copy_(5 * eye.roll(1, dims=0))
        if kind == "rnn":
            module.memory.input_weight.copy_(torch.cat([none, -30 * torch.ones(vocab, vocab), 3 * eye]))
            module.memory.state_weight.zero_()
            module.narrow.copy_(eye)
        else:
            module.previous.copy_(eye)
    assert tokens_per_round(module, made) == 6
