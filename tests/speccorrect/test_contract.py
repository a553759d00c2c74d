"""The contract, for every corrector there is: a new file in the folder is tested here without being named."""

import pytest
import torch

from speccorrect.registry import corrector_specs
from speccorrect.source import HeadShape, HeadSource

from doubles.blocks import Drafted, check_block, check_contract, check_lanes, check_scores, drafted, randomise


def new(name: str, made: Drafted):
    return randomise(corrector_specs()[name].new(made.shape), scale=0.25)


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("name", corrector_specs())
def test_lanes_block_vocabulary_and_scores(name, shifted):
    made = drafted(shifted=shifted)
    corrector = new(name, made)
    if corrector.support is None:
        check_contract(corrector, made, 8)
        check_scores(corrector, made, None)
        return
    for check in (check_block, check_lanes, check_scores):
        check(corrector, made, min(8, corrector.support))


@pytest.mark.parametrize("name", corrector_specs())
def test_no_argument_is_written_to(name):
    made = drafted()
    corrector = new(name, made)
    given = made.candidates(corrector.support or 8)
    held = [
        made.block.hidden_BRD,
        made.borrowed.embedding_VD,
        made.borrowed.head_VD,
        given.base_BKC,
        given.ids_BKC,
    ]
    before = [tensor.clone() for tensor in held]
    with torch.no_grad():
        prepared = corrector.prepare(made.block, made.borrowed, given)
        state = corrector.start(prepared).expand(-1, 3, -1)
        for depth in range(made.block.slots):
            kept = state.clone()
            corrector.scores(prepared, depth, state)
            later = corrector.advance(prepared, depth, torch.ones(2, 3, dtype=torch.int64), state)
            assert torch.equal(state, kept)
            state = later
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(held, before, strict=True))


@pytest.mark.parametrize("name", corrector_specs())
def test_runs_in_bfloat16_and_scores_in_float32(name):
    made = drafted()
    half = torch.bfloat16
    block, borrowed = made.block, made.borrowed
    for owner, names in ((block, ("hidden_BRD", "feature_BD")), (borrowed, ("embedding_VD", "head_VD"))):
        for field in names:
            object.__setattr__(owner, field, getattr(owner, field).to(half))
    corrector = new(name, made).to(half)
    with torch.no_grad():
        prepared = corrector.prepare(block, borrowed, made.candidates(corrector.support or 8))
        state = corrector.start(prepared)
        for depth in range(block.slots):
            scores = corrector.scores(prepared, depth, state)
            assert scores.dtype == torch.float32
            assert not scores.isnan().any()
            state = corrector.advance(prepared, depth, scores.argmax(dim=-1), state)


@pytest.mark.parametrize("name", corrector_specs())
@pytest.mark.parametrize("size", [(64, 512), (256, 4096)])
def test_new_fits_small_targets_and_survives_its_own_file(name, size):
    hidden, vocab = size
    shape = HeadShape(hidden_size=hidden, vocab_size=vocab, block_size=8, shifted=False)
    spec = corrector_specs()[name]
    module = spec.new(shape)
    config, tensors = spec.save(module)
    source = HeadSource(shape=shape, config=config, tensors=tensors)
    again = spec.load(source)
    assert not source.config
    assert not source.tensors
    assert all(torch.equal(tensor, again.state_dict()[key]) for key, tensor in module.state_dict().items())
    assert sum(parameter.numel() for parameter in module.parameters()) < 20_000_000
