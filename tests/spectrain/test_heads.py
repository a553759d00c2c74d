"""Every recipe trains what it should and lowers its loss; lengths equal a loop; what is saved loads as what it was."""

from dataclasses import replace

import pytest
import torch

from speccorrect.registry import corrector_specs
from speccorrect.source import HeadShape
from specrun.assemble import load_engine
from spectrain.anchors import Anchors, anchor_candidates, sample_anchors
from spectrain.data import pack, plan_rows
from spectrain.heads import Pair, expected_lengths, fit_local, head_objective, numbered, save_pair
from spectrain.loop import Loop, LoopConfig
from spectrain.optim import GroupedOptimiser, MixedOptimiser, OptimiserConfig, Schedule
from spectrain.recipes import RECIPES, Moment, recipe
from spectrain.taught import offer, score, teach, teach_text

from doubles.blocks import randomise
from doubles.corpora import random_shard
from doubles.family import write_family
from doubles.tiny import dflash_config, qwen3_config, tiny_drafter, tiny_target

CONFIG = qwen3_config(vocab_size=16, num_layers=3)
SHARD = random_shard(6, vocab=12, shortest=18, longest=24)
STEPS = 8


def pair_of(name: str) -> tuple[torch.nn.Module, Pair]:
    target = tiny_target(CONFIG)
    drafter = tiny_drafter(CONFIG, dflash_config(CONFIG, target_layers=(0, 1), mask_token_id=15))
    drafter.requires_grad_(requires_grad=True)
    corrector = name if name in corrector_specs() else "none"
    shape = HeadShape(hidden_size=32, vocab_size=16, block_size=6, shifted=False)
    return target, Pair(drafter, corrector_specs()[corrector].new(shape))


def loop_of(name: str, folder, target, pair, steps: int = STEPS) -> Loop:
    rule = recipe(name)
    config = OptimiserConfig(matrix_lr=0.02, other_lr=1e-2)
    parts = [MixedOptimiser([pair.drafter], config)] if rule.backbone else []
    if any(True for _ in pair.head.parameters()):
        parts.append(MixedOptimiser([pair.head], config, table_rows=16))
    batch = pack(SHARD, [[0, 1], [2, 3], [4, 5]], 48)
    return Loop(
        model=pair,
        optimiser=GroupedOptimiser(parts),
        schedule=Schedule(steps=steps, warmup=1),
        config=LoopConfig(seed=0, log_every=1, checkpoint_every=3),
        folder=folder,
        batch=numbered(lambda number: batch),
        objective=head_objective(
            target,
            pair,
            rule,
            steps=steps,
            anchors=6,
            gamma=4.0,
            temperature_D=torch.tensor([0.0, 1.0, 0.7, 0.0, 1.0, 0.7]),
        ),
    )


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_lowers_its_loss_and_trains_its_share(name, tmp_path):
    target, pair = pair_of(name)
    loop = loop_of(name, tmp_path, target, pair)
    batch = loop.batch(1)

    def loss() -> float:
        return float(loop.objective(batch, torch.Generator().manual_seed(1)).loss.detach())

    before = loss()
    frozen = {key: value.detach().clone() for key, value in pair.named_parameters()}
    loop.run()
    assert loss() < before - 1e-3
    moved = {key for key, value in pair.named_parameters() if not torch.equal(value, frozen[key])}
    drafter = {key for key in frozen if key.startswith("drafter.")}
    assert moved & drafter == (drafter if recipe(name).backbone else set())
    assert moved - drafter == frozen.keys() - drafter, "every tensor of the head learns"
    assert all(parameter.grad is None for parameter in target.parameters())


@pytest.mark.parametrize("name", RECIPES)
def test_a_loss_is_computed_where_the_models_are(name):
    """Batches are made on the CPU. Tensors of the device "meta" hold nothing, but refuse arithmetic with those of another."""
    target, pair = pair_of(name)
    target, pair, rule = target.to("meta"), pair.to("meta"), recipe(name)
    batch = pack(SHARD, [[0, 1], [2, 3]], 48)
    places = sample_anchors(anchor_candidates(batch), 6, torch.Generator().manual_seed(0))
    if rule.backbone:
        taught = teach(target, pair.drafter, batch, places, distribution=rule.distribution)
    else:
        taught = teach_text(target, pair.drafter.config, batch, places)
    temperature_M = torch.zeros(taught.document_M.shape, device="meta")
    found = rule.loss(taught, pair.head, Moment(step=0, steps=2, gamma=4.0, temperature_M=temperature_M))
    found.loss.backward()
    assert {found.loss.device.type, *(value.device.type for value in found.metrics.values())} == {"meta"}


def test_a_resumed_run_is_the_unbroken_one(tmp_path):
    target, pair = pair_of("domino")
    loop_of("domino", tmp_path / "whole", target, pair, 5).run()
    _, half = pair_of("domino")
    broken = loop_of("domino", tmp_path / "half", target, half, 5)
    inner, calls = broken.objective, []

    def objective(batch, generator):
        calls.append(batch.number)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return inner(batch, generator)

    broken.objective = objective
    with pytest.raises(KeyboardInterrupt):
        broken.run()
    _, again = pair_of("domino")
    loop_of("domino", tmp_path / "half", target, again, 5).run(resume=True)
    for (key, one), other in zip(pair.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other), key


@torch.no_grad()
def test_lengths_equal_a_loop_over_places():
    target, pair = pair_of("domino")
    randomise(pair.head)
    found = expected_lengths(
        target, pair.drafter, pair.head, SHARD, ("even", "odd"), row=48, anchors=5, rows=2
    )
    # the same rows and places, but every token drafted by hand behind those before it
    totals = {"even": [], "odd": []}
    plan = plan_rows(SHARD.lengths, torch.arange(6).numpy(), 48)
    for start in range(0, len(plan), 2):
        batch = pack(SHARD, plan[start : start + 2], 48)
        places = sample_anchors(anchor_candidates(batch), 5, torch.Generator().manual_seed(start))
        for row in range(batch.token_BS.shape[0]):
            one = type(batch)(*(part[row : row + 1] for part in batch))
            for place, kept in zip(places.place_BN[row].tolist(), places.kept_BN[row].tolist(), strict=True):
                if not kept:
                    continue
                anchor = Anchors(torch.tensor([[place]]), torch.tensor([[True]]))
                taught = teach(target, pair.drafter, one, anchor, distribution=False)
                prepared = pair.head.prepare(taught.block, taught.borrowed, offer(taught, None))
                state, right = pair.head.start(prepared), 0
                for depth in range(taught.block.slots):
                    token = pair.head.scores(prepared, depth, state).argmax(-1)
                    if int(token) != int(taught.label_MK[0, depth]) or not taught.trained_MK[0, depth]:
                        break
                    right += 1
                    state = pair.head.advance(prepared, depth, token, state)
                totals["odd" if int(taught.document_M) % 2 else "even"].append(right + 1)
    for domain, values in totals.items():
        assert found[domain] == pytest.approx(sum(values) / len(values))
    everything = [value for values in totals.values() for value in values]
    assert found["all"] == pytest.approx(sum(everything) / len(everything))


@torch.no_grad()
def test_the_weights_of_a_local_model_are_those_of_a_search():
    """The fitted pair beats its neighbours on the very slots that it was fitted on, drafted slots with a known one before."""
    target, pair = pair_of("dels")
    randomise(pair.head)
    pair.head.counts.copy_(torch.arange(16) ** 2)
    batch = pack(SHARD, [[0, 1], [2, 3], [4, 5]], 48)
    found = fit_local(target, pair.drafter, pair.head, [batch], anchors=20, limit=10_000)
    places = sample_anchors(anchor_candidates(batch), 20, torch.Generator().manual_seed(0))
    taught = teach(target, pair.drafter, batch, places, distribution=False)

    def loss(alpha: float, beta: float) -> float:
        pair.head.config = replace(pair.head.config, alpha=(alpha,), beta=(beta,))
        scored = score(pair.head, taught, offer(taught, None))
        return float(scored.nll_MK[:, 1:][taught.trained_MK[:, 1:]].double().mean())

    best = loss(found.alpha, found.beta)
    for shift in (-0.02, 0.02):
        assert loss(found.alpha + shift, found.beta) > best
        assert loss(found.alpha, found.beta + shift) > best


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return write_family(tmp_path_factory.mktemp("family"))


@pytest.mark.parametrize("name", sorted(corrector_specs()))
def test_what_is_saved_loads_as_what_it_was(name, family, tmp_path):
    target = tiny_target(qwen3_config(vocab_size=2048, max_positions=256))
    drafter = tiny_drafter(target.config)
    config = drafter.config
    shape = HeadShape(
        hidden_size=config.hidden_size, vocab_size=2048, block_size=config.block_size, shifted=False
    )
    head = randomise(corrector_specs()[name].new(shape))
    save_pair(drafter, name, head, target.config, tmp_path, dtype=torch.bfloat16)
    engine = load_engine(family.target, "dflash" if name == "none" else name, draft=tmp_path)
    for ours, theirs in ((drafter, engine.parts.drafter), (head, engine.parts.corrector)):
        loaded = theirs.state_dict()
        for key, tensor in ours.state_dict().items():
            expected = tensor.bfloat16().to(tensor.dtype) if tensor.is_floating_point() else tensor
            assert torch.equal(loaded[key], expected), key
