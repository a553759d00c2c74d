"""Biases of routers move against the load, by counts of the training passes alone."""

import torch

from specmodels.kv import RowsMemory
from spectrain.balance import LoadBalance

from doubles.tiny import tiny_llada2


def forward(model) -> None:
    tokens = torch.randint(50, (2, 150), generator=torch.Generator().manual_seed(0))
    model(tokens, torch.arange(150).expand(2, 150), RowsMemory())


def test_loads_even_out():
    model = tiny_llada2().train()
    balance = LoadBalance(model, rate=0.02)
    loads = []
    for _ in range(60):
        forward(model)
        loads.append(float(balance.update()))
    assert loads[0] > 2
    assert loads[-1] < 1.3


def test_the_bias_of_a_busy_expert_falls_by_the_rate():
    model = tiny_llada2().train()
    router = model.layers[1].mlp.router
    before, counts = router.bias.clone(), {}
    router.register_forward_hook(
        lambda module, inputs, routing: counts.update(load=routing.expert_QC.flatten().bincount(minlength=12))
    )
    balance = LoadBalance(model, rate=0.5)
    forward(model)
    balance.update()
    expected = before + 0.5 * (counts["load"].float().mean() - counts["load"]).sign()
    assert torch.equal(router.bias, expected)
    balance.update()
    assert torch.equal(router.bias, expected), "counts are used once"


def test_evaluation_does_not_count():
    model = tiny_llada2()
    balance = LoadBalance(model, rate=0.5)
    before = model.layers[1].mlp.router.bias.clone()
    forward(model)
    assert float(balance.update()) == 1.0
    assert torch.equal(model.layers[1].mlp.router.bias, before)
