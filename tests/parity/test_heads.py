"""Heads against the ones of the package speculators 0.9.0: the same weights under its names, the same scores."""

import importlib
import importlib.util
import sys
from functools import cache
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from speccorrect.contract import unroll
from speccorrect.correctors import dflash2, dspark, xpress
from speccorrect.source import HeadSource

from doubles.blocks import Drafted, drafted, random_choices

pytestmark = pytest.mark.parity

# fp32 products of one order of magnitude, summed in another order
CLOSE = 1e-5
VOCAB, WIDTH, SLOTS = 40, 12, 5


@cache
def installed() -> str:
    """Where the package lies."""
    found = importlib.util.find_spec("speculators")
    if found is None:
        pytest.skip("speculators is not installed")
    (root,) = found.submodule_search_locations
    return root


def definitions(method: str) -> ModuleType:
    """A method's file of modules alone.

    Importing the package itself asks for its trainers' dependencies: data sets, servers, clients. The files of modules
    need torch and transformers, so its folders stand in as packages whose `__init__` is not run.
    """
    root = installed()
    for name in (
        "speculators",
        "speculators.models",
        "speculators.models.dflash",
        f"speculators.models.{method}",
    ):
        if name not in sys.modules:
            folder = ModuleType(name)
            folder.__path__ = ["/".join([root, *name.split(".")[1:]])]
            sys.modules[name] = folder
    return importlib.import_module(f"speculators.models.{method}.model_definitions")


def randomise(module: nn.Module) -> dict[str, Tensor]:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, 0.3)
    return dict(module.state_dict())


def load(spec, given: Drafted, config: dict, tensors: dict[str, Tensor]) -> nn.Module:
    source = HeadSource(given.shape, dict(config), dict(tensors))
    assert spec.claims(source.config, frozenset(source.tensors))
    module = spec.load(source)
    assert not source.config
    assert not source.tensors
    return module


def check(module: nn.Module, given: Drafted, bias_of, tokens_BK: Tensor) -> None:
    """Block and steps equal base + bias, where `bias_of` gives theirs `[B, K, V]`."""
    prepared = module.prepare(given.block, given.borrowed, given.candidates())
    expected = (given.logits_BKV + bias_of(tokens_BK)).log_softmax(dim=-1)
    torch.testing.assert_close(module.block(prepared, tokens_BK), expected, rtol=CLOSE, atol=CLOSE)
    torch.testing.assert_close(unroll(module, prepared, tokens_BK), expected, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("shifted", [True, False])
@torch.no_grad()
def test_xpress(shifted):
    given = drafted(vocab=VOCAB, width=WIDTH, slots=SLOTS, shifted=shifted)
    rows = given.block.hidden_BRD.shape[1]
    theirs = definitions("xpress").XPressRefinerHead(
        verifier_vocab_size=VOCAB,
        draft_vocab_size=VOCAB,
        hidden_size=WIDTH,
        block_size=rows,
        rank=6,
        mlp_ratio=2,
    )
    tensors = {"refiner_head." + name: tensor for name, tensor in randomise(theirs).items()}
    config = {"xpress_rank": 6, "xpress_mlp_ratio": 2, "num_jacobi_passes": 6}
    ours = load(xpress.SPEC, given, config, tensors)

    def bias(tokens_BK):
        known = [given.block.anchor_B] if shifted else [given.block.before_B, given.block.anchor_B]
        before = torch.cat([torch.stack(known, dim=1), tokens_BK[:, :-1]], dim=1)
        return theirs.block_bias(before, hidden_states=given.block.hidden_BRD)[:, given.block.first :]

    check(ours, given, bias, random_choices(given.candidates())[:, 0])


@pytest.mark.parametrize("kind", ["vanilla", "gated", "rnn"])
@torch.no_grad()
def test_dspark(kind):
    given = drafted(vocab=VOCAB, width=WIDTH, slots=SLOTS, shifted=True)
    public = definitions("dspark")
    theirs = public.MarkovHead(
        verifier_vocab_size=VOCAB, draft_vocab_size=VOCAB, markov_rank=6, hidden_size=WIDTH, head_type=kind
    )
    their_confidence = public.ConfidenceHead(WIDTH + 6)
    tensors = {"markov_head." + name: tensor for name, tensor in randomise(theirs).items()}
    tensors |= {"confidence_head." + name: tensor for name, tensor in randomise(their_confidence).items()}
    config = {
        "markov_rank": 6,
        "markov_head_type": kind,
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    }
    ours = load(dspark.SPEC, given, config, tensors)
    tokens = random_choices(given.candidates())[:, 0]

    def before(tokens_BK):
        return torch.cat([given.block.anchor_B[:, None], tokens_BK[:, :-1]], dim=1)

    check(
        ours,
        given,
        lambda tokens_BK: theirs.block_bias(
            prev_token_ids=before(tokens_BK), hidden_states=given.block.hidden_BRD
        ),
        tokens,
    )
    features = torch.cat([given.block.hidden_BRD, theirs.prev_embeddings(before(tokens))], dim=-1)
    expected = their_confidence(features)
    prepared = ours.prepare(given.block, given.borrowed, given.candidates())
    state = ours.start(prepared)
    for depth in range(SLOTS):
        confidence = ours.confidence(prepared, depth, state)
        torch.testing.assert_close(confidence, expected[:, depth, None], rtol=CLOSE, atol=CLOSE)
        state = ours.advance(prepared, depth, tokens[:, depth, None], state)


@pytest.mark.parametrize("shifted", [True, False])
@torch.no_grad()
def test_dflash2(shifted):
    given = drafted(vocab=VOCAB, width=WIDTH, slots=SLOTS, shifted=shifted)
    theirs = definitions("dflash2").CandidateSelector(vocab_size=VOCAB, hidden_size=WIDTH, rank=6, top_k=7)
    tensors = {"candidate_selector." + name: tensor for name, tensor in randomise(theirs).items()}
    ours = load(dflash2.SPEC, given, {"selector_rank": 6, "selector_top_k": 7}, tensors)
    prepared = ours.prepare(given.block, given.borrowed, given.candidates())
    choice = random_choices(prepared.candidates)[:, 0]
    tokens = prepared.candidates.ids_BKC.gather(-1, choice[..., None]).squeeze(-1)
    before = torch.cat([given.block.anchor_B[:, None], tokens[:, :-1]], dim=1)
    ids, scores = theirs.select(given.logits_BKV, given.block.rows_BKD, before)
    assert torch.equal(prepared.candidates.ids_BKC, ids)
    torch.testing.assert_close(
        ours.block(prepared, choice), scores.log_softmax(dim=-1), rtol=CLOSE, atol=CLOSE
    )
