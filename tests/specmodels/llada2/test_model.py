"""LLaDA2 against a twin written from its equations over a saved folder, and its experts against one row at a time.

Catches a wrong norm, head order, partial rotation, mask, routing by groups, bias in the weights, or tensor name.
"""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from specmodels import save_llada2
from specmodels.kv import CacheMemory, RowsMemory
from specmodels.llada2 import block_causal
from specmodels.llada2.experts import Router, products

from doubles.tiny import llada2_config, tiny_llada2
from reference.llada2 import logits as twin_logits
from reference.llada2 import routing as twin_routing

# fp32 on logits of size 10; the twin rounds each product alone
LOGITS = 1e-5
# fp64 hides nothing of the size of a wrong equation
EXACT = 1e-9

CONFIGS = {
    "published form": llada2_config(),
    "whole rotation": llada2_config(rotary_dim=8),
    "no group limit": llada2_config(expert_groups=1, groups_per_row=1),
    "sum of weights free": llada2_config(normalise_routing=False),
    "groups of one": llada2_config(expert_groups=12, groups_per_row=5),
    "all dense": llada2_config(dense_layers=3),
}


def positions(count: int) -> torch.Tensor:
    return torch.arange(count)[None]


def forward(model, ids: list[int], block: int) -> torch.Tensor:
    place = positions(len(ids))
    memory = RowsMemory(block_causal(place, place, block))
    return model.logits(model(torch.tensor([ids]), place, memory))[0]


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_the_twin(name, tmp_path):
    model = tiny_llada2(CONFIGS[name])
    save_llada2(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    tensors = load_file(tmp_path / "model.safetensors")
    ids = torch.randint(52, (7,)).tolist()
    expected = twin_logits(config, tensors, ids, block=3)
    torch.testing.assert_close(forward(model, ids, 3), expected, atol=LOGITS, rtol=0)


def test_the_mask_is_a_staircase_from_position_zero():
    mask = block_causal(torch.tensor([[3, 4, 7]]), positions(9), 4)
    assert mask.long().tolist() == [
        [[1, 1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1, 1, 0]]
    ]


def test_routing_equals_the_twin():
    config = llada2_config()
    router = Router(config).requires_grad_(requires_grad=False)
    torch.nn.init.normal_(router.weight, std=0.4)
    torch.nn.init.uniform_(router.bias, 0, 0.8)
    x_QD = torch.randn(64, config.hidden_size)
    found = router(x_QD)
    public = {
        "n_group": 4,
        "topk_group": 2,
        "num_experts_per_tok": 3,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
    }
    ignoring = 0
    for row in range(64):
        products_E = router.weight.double() @ x_QD[row].double()
        expected = twin_routing(public, products_E, router.bias)
        ours = dict(zip(found.expert_QC[row].tolist(), found.weight_QC[row].tolist(), strict=True))
        assert ours.keys() == expected.keys()
        assert all(abs(ours[e] - expected[e]) < 1e-5 for e in expected)
        ignoring += twin_routing(public, products_E, router.bias * 0).keys() == expected.keys()
    assert ignoring < 40, "the bias has to matter here"


def test_the_router_works_in_single_precision_however_narrow_the_rows():
    config = llada2_config()
    router = Router(config).to(torch.bfloat16)
    torch.nn.init.normal_(router.weight, std=0.05)
    router.bias.data.zero_()
    x_QD = torch.randn(256, config.hidden_size, dtype=torch.bfloat16)
    wide = Router(config)
    wide.load_state_dict({name: tensor.float() for name, tensor in router.state_dict().items()})
    with torch.autocast("cpu", torch.bfloat16):
        found = router(x_QD)
    expected = wide(x_QD.float())
    assert found.weight_QC.dtype == torch.float32
    assert torch.equal(found.expert_QC.sort().values, expected.expert_QC.sort().values)


@pytest.mark.parametrize("rows", [1, 2, 7, 200])
def test_experts_together_equal_experts_one_by_one(rows):
    model = tiny_llada2(dtype=torch.float64)
    block = model.layers[1].mlp
    x_QD = torch.randn(rows, 32, dtype=torch.float64)
    routing = block.router(x_QD)
    found_QD = block.experts(x_QD, routing)
    for row in range(rows):
        expected_D = torch.zeros(32, dtype=torch.float64)
        for e, weight in zip(routing.expert_QC[row], routing.weight_QC[row], strict=True):
            inner = F.silu(block.experts.gate_EUD[e] @ x_QD[row]) * (block.experts.up_EUD[e] @ x_QD[row])
            expected_D += weight * (block.experts.down_EDU[e] @ inner)
        torch.testing.assert_close(found_QD[row], expected_D, atol=EXACT, rtol=0)


def test_experts_that_nobody_chose_take_no_part():
    model = tiny_llada2()
    block = model.layers[1].mlp
    x_QD = torch.randn(2, 32)
    routing = block.router(x_QD)
    expected = block.experts(x_QD, routing)
    unread = torch.ones(12, dtype=torch.bool).index_fill(0, routing.expert_QC.flatten(), False)
    assert unread.sum() >= 6
    for parameter in block.experts.parameters():
        parameter[unread] = float("nan")
    assert torch.equal(block.experts(x_QD, routing), expected)


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="this torch has no grouped product")
def test_the_product_of_groups_that_cuda_takes_is_the_same():
    counts = torch.tensor([3, 0, 5, 1])
    rows_RD, weight_EUD = torch.randn(9, 16), torch.randn(4, 8, 16)
    expected = F.grouped_mm(rows_RD, weight_EUD.mT, offs=counts.cumsum(0).to(torch.int32))
    torch.testing.assert_close(products(rows_RD, weight_EUD, counts), expected, atol=1e-5, rtol=0)


def test_a_cache_of_finished_blocks_equals_the_whole_text():
    model = tiny_llada2(dtype=torch.float64)
    ids = torch.randint(52, (1, 22))
    place = positions(22)
    whole = model(ids, place, RowsMemory(block_causal(place, place, 8)))
    kv = model.new_kv(batch=1, capacity=24)
    parts = []
    for start in (0, 8, 16):
        rows = place[:, start : start + 8]
        memory = CacheMemory(kv, rows, block_causal(rows, positions(24), 8) & (positions(24) < 22)[:, None])
        parts.append(model(ids[:, start : start + 8], rows, memory))
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=EXACT, rtol=0)
