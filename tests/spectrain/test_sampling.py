"""Batched sampling equals decoding every prompt alone without a cache, and temperature one follows the softmax."""

import torch

from specmodels.kv import RowsMemory
from spectrain.sampling import Request, sample_responses

from doubles.tiny import qwen3_config, tiny_target

CONFIG = qwen3_config(vocab_size=12)


def logits_after(model, ids):
    out = model(torch.tensor([ids]), torch.arange(len(ids))[None], RowsMemory())
    return model.logits(out.hidden_BQD)[0, -1]


def test_greedy_rows_equal_decoding_alone():
    model = tiny_target(CONFIG, dtype=torch.float64)
    # so many that a row which ends stays in the batch for a while before it is dropped
    prompts = [[a, b][: 1 + (a + b) % 2] + [b] * (a % 3) for a in range(5) for b in range(5)]
    found = sample_responses(
        model, [Request(prompt, 0.0) for prompt in prompts], end=11, longest=20, generator=torch.Generator()
    )
    for prompt, response in zip(prompts, found, strict=True):
        expected = []
        while len(expected) < 20 and 11 not in expected:
            expected.append(int(logits_after(model, prompt + expected).argmax()))
        assert response == expected
    # some rows end early and some do not, or the batch never shrinks
    assert len({len(response) for response in found}) > 1


def test_temperature_one_follows_the_softmax():
    model = tiny_target(CONFIG)
    count = 4000
    requests = [Request([3, 1], 1.0)] * count
    found = sample_responses(model, requests, end=11, longest=1, generator=torch.Generator().manual_seed(0))
    seen = torch.bincount(torch.tensor([response[0] for response in found]), minlength=12).double()
    expected = logits_after(model, [3, 1]).double().softmax(-1) * count
    big = expected >= 5
    statistic = float(((seen - expected).square() / expected)[big].sum())
    # 11 degrees of freedom at most: above 31.3 with probability 0.001
    assert statistic < 31.3
