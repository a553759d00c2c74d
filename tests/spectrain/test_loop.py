"""Resuming is bit-equal, accumulation is a mean, and a loss that is not finite stops the run with its cause kept."""

import json
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from spectrain.loop import Loop, LoopConfig, Loss, draw_seed
from spectrain.optim import MixedOptimiser, OptimiserConfig, Schedule


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


def pair(number: int) -> Pair:
    generator = torch.Generator().manual_seed(number)
    return Pair(torch.randn(4, 6, generator=generator), torch.randn(4, 3, generator=generator))


def loop(folder, *, steps=12, batch=pair, poison=None, **changes):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def objective(found, generator):
        noise = torch.rand(found.x.shape, generator=generator)
        loss = (model(found.x + 0.1 * noise) - found.y).square().mean()
        return Loss(loss, {"noise": noise.mean()})

    config = LoopConfig(**{"seed": 1, "log_every": 1, "checkpoint_every": 5, **changes})
    optimiser = MixedOptimiser([model], OptimiserConfig(matrix_lr=0.02, other_lr=1e-2))
    schedule = Schedule(steps=steps, warmup=2)
    return Loop(
        model=model,
        optimiser=optimiser,
        schedule=schedule,
        config=config,
        folder=folder,
        batch=batch,
        objective=objective,
    )


def parameters(run):
    return [parameter.detach().clone() for parameter in run.model.parameters()]


@pytest.mark.parametrize("average", [None, 0.9])
def test_resume_is_bit_equal(tmp_path, average):
    whole = loop(tmp_path / "whole", accumulation=2, average=average)
    whole.run()

    def breaks(number):
        if number == 15:  # in the eighth step, after the checkpoint at five
            raise KeyboardInterrupt
        return pair(number)

    broken = loop(tmp_path / "broken", accumulation=2, average=average, batch=breaks)
    with pytest.raises(KeyboardInterrupt):
        broken.run()
    resumed = loop(tmp_path / "broken", accumulation=2, average=average)
    resumed.run(resume=True)
    assert all(torch.equal(a, b) for a, b in zip(parameters(whole), parameters(resumed), strict=True))
    saved = [torch.load(tmp_path / name / "last.pt") for name in ("whole", "broken")]
    assert saved[0]["average"].keys() == saved[1]["average"].keys()
    assert all(
        torch.equal(saved[0]["average"][name], saved[1]["average"][name]) for name in saved[0]["average"]
    )


def test_the_log_of_a_resumed_run_names_every_step_once(tmp_path):
    def breaks(number):
        if number == 8:
            raise KeyboardInterrupt
        return pair(number)

    with pytest.raises(KeyboardInterrupt):
        loop(tmp_path, batch=breaks).run()
    log = tmp_path / "log.jsonl"
    assert json.loads(log.read_text().splitlines()[-1])["step"] == 8
    log.write_text(log.read_text() + '{"step": 9, "lo')  # half a line, as a kill leaves it
    loop(tmp_path).run(resume=True)
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == list(range(1, 13))


def test_the_average_follows_its_rule(tmp_path):
    run = loop(tmp_path, steps=3, average=0.5)
    expected = parameters(run)
    seen = []
    run.progress = lambda step, values: seen.append(parameters(run))
    run.run()
    for now in seen:
        expected = [(a + b) / 2 for a, b in zip(expected, now, strict=True)]
    saved = torch.load(tmp_path / "last.pt")["average"]
    for a, b in zip(expected, saved.values(), strict=True):
        torch.testing.assert_close(a, b)


def test_accumulation_is_the_mean_over_its_batches(tmp_path):
    gradients = []
    for count, numbers in ((1, (0, 1)), (2, (0,))):
        run = loop(tmp_path / str(count), accumulation=count)
        total = [torch.zeros_like(parameter) for parameter in run.model.parameters()]
        for number in numbers:
            run._forward_backward(number)
        for place, parameter in enumerate(run.model.parameters()):
            total[place] += parameter.grad / (2 if count == 1 else 1)
        gradients.append(total)
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_a_loss_that_is_not_finite_stops_and_keeps_its_batch(tmp_path):
    def poisoned(number):
        found = pair(number)
        return Pair(found.x, found.y * float("nan")) if number == 6 else found

    run = loop(tmp_path, batch=poisoned)
    with pytest.raises(FloatingPointError, match=r"step 6, batch kept in not-finite-6\.pt"):
        run.run()
    kept = torch.load(tmp_path / "not-finite-6.pt")
    assert kept["step"] == 6
    assert torch.equal(kept["batch"][0], pair(6).x)
    # the last good state is there to go on from
    assert torch.load(tmp_path / "last.pt")["step"] == 5


def test_log_milestones_evaluation_and_progress(tmp_path):
    run = loop(tmp_path, steps=6, log_every=2, evaluate_every=4, milestones=(3,))
    run.evaluate = lambda: {"held_out": 1.5}
    steps = []
    run.progress = lambda step, values: steps.append(step)
    run.run()
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 4, 6]
    assert ["held_out" in row for row in rows] == [False, True, True]
    assert all(row["loss"] > 0 and row["gradient_norm"] > 0 for row in rows)
    assert steps == [1, 2, 3, 4, 5, 6]
    assert torch.load(tmp_path / "step-3.pt")["step"] == 3


def test_resume_refuses_another_run(tmp_path):
    loop(tmp_path, steps=5).run()
    with pytest.raises(ValueError, match="use that seed"):
        loop(tmp_path, seed=2).run(resume=True)
    with pytest.raises(ValueError, match="keep the choice"):
        loop(tmp_path, average=0.5).run(resume=True)


def test_draw_seeds_differ():
    seeds = {draw_seed(seed, number) for seed in range(5) for number in range(500)}
    assert len(seeds) == 2500
    assert all(0 <= seed < 2**63 for seed in seeds)
