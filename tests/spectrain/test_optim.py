"""Muon's updates are near-orthogonal part by part, and the schedule has the shape that it promises."""

import pytest
import torch
from torch import nn

from specmodels.initialise import initialise
from specmodels.qwen3 import Qwen3
from spectrain.optim import MixedOptimiser, Muon, OptimiserConfig, Schedule, fused_rows, orthogonalise

from doubles.tiny import qwen3_config

# five steps of the quintic leave singular values in this band
LOW, HIGH = 0.6, 1.3


@pytest.mark.parametrize("shape", [(16, 16), (8, 24), (24, 8)])
def test_orthogonalise_moves_singular_values_near_one(shape):
    x = torch.randn(3, *shape) * torch.tensor([1e-3, 1.0, 1e3])[:, None, None]
    values = torch.linalg.svdvals(orthogonalise(x))
    assert float(values.min()) > LOW
    assert float(values.max()) < HIGH


def test_orthogonalise_keeps_the_singular_vectors():
    u, _, vh = torch.linalg.svd(torch.randn(6, 9), full_matrices=False)
    x = u @ torch.diag(torch.linspace(0.5, 2.0, 6)) @ vh
    found = u.mT @ orthogonalise(x[None])[0] @ vh.mT
    torch.testing.assert_close(found, torch.diag(found.diagonal()), atol=1e-4, rtol=0)


def test_muon_orthogonalises_fused_parts_alone():
    weight = nn.Parameter(torch.zeros(12, 8))
    optimiser = Muon([weight], [(8, 4)], lr=0.5, momentum=0.9)
    # parts of very different size: together, the small one would be lost
    weight.grad = torch.cat([torch.randn(8, 8) * 1e3, torch.randn(4, 8) * 1e-3])
    optimiser.step()
    for part in weight.detach().split((8, 4)):
        values = torch.linalg.svdvals(part) / 0.5
        assert float(values.min()) > LOW
        assert float(values.max()) < HIGH


def test_muon_refuses_what_is_no_matrix():
    with pytest.raises(ValueError, match="give other parameters to AdamW"):
        Muon([nn.Parameter(torch.zeros(3))], [(3,)], lr=1.0, momentum=0.9)


def test_hidden_matrices_go_to_muon_and_the_rest_to_adamw():
    model = Qwen3(qwen3_config(tie_embeddings=False))
    initialise(model, torch.Generator().manual_seed(0))
    optimiser = MixedOptimiser([model], OptimiserConfig(matrix_lr=0.02, other_lr=1e-3))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter).sign()  # none so small that epsilon shows
    optimiser.step(1.0)
    for name, parameter in model.named_parameters():
        change = (parameter.detach() - before[name]).abs()
        if name.endswith(("embedding", "head.weight")) or parameter.ndim < 2:
            # the first step of Adam moves every weight by the learning rate
            torch.testing.assert_close(change, torch.full_like(change, 1e-3), rtol=1e-2, atol=1e-6)
        else:
            assert float(change.std()) > 1e-4, name
        assert parameter.grad is None


def test_fused_rows_add_up():
    model = Qwen3(qwen3_config())
    rows = fused_rows(model)
    attention, mlp = model.layers[0].attention, model.layers[0].mlp
    assert rows[id(attention.qkv.weight)] == (32, 16, 16)
    assert rows[id(mlp.gate_up.weight)] == (48, 48)
    assert len(rows) == 8


def test_wsd_rises_stays_and_falls_to_zero():
    schedule = Schedule(steps=100, warmup=9, decay=0.25)
    factors = [schedule.factor(step) for step in range(100)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factors[10:75] == [1.0] * 65
    assert factors[75:] == pytest.approx([1 - (step + 1) / 26 for step in range(25)])


def test_a_longer_wsd_run_begins_as_the_shorter_one():
    short, long = Schedule(steps=100, warmup=5), Schedule(steps=400, warmup=5)
    assert [short.factor(step) for step in range(short.decay_start)] == [
        long.factor(step) for step in range(short.decay_start)
    ]


def test_cosine_falls_all_the_way():
    factors = [Schedule(steps=50, warmup=5, kind="cosine").factor(step) for step in range(5, 50)]
    assert factors == sorted(factors, reverse=True)
    assert 0 < factors[-1] < 0.01
    assert 0.99 < factors[0] <= 1.0


def test_schedule_errors():
    with pytest.raises(ValueError, match="fewer steps of warm-up"):
        Schedule(steps=5, warmup=5)
    with pytest.raises(ValueError, match="share of the steps"):
        Schedule(steps=5, warmup=1, decay=0.0)
