"""The objective equals a loss over every document alone; packing changes nothing."""

import numpy as np
import torch

from specmodels.kv import RowsMemory
from spectrain.data import pack
from spectrain.pretraining import losses_by_domain, next_token_objective

from doubles.corpora import random_shard
from doubles.tiny import qwen3_config, tiny_target


def losses_alone(model, ids):
    out = model(ids[None, :-1], torch.arange(len(ids) - 1)[None], RowsMemory())
    logp = model.logits(out.hidden_BQD)[0].log_softmax(-1)
    return -logp[torch.arange(len(ids) - 1), ids[1:]]


def test_packed_loss_equals_documents_alone():
    model, shard = tiny_target(qwen3_config(), dtype=torch.float64), random_shard(5)
    batch = pack(shard, [[0, 1], [2, 4], [3]], 60)
    found = next_token_objective(model, compiled=False)(batch, torch.Generator()).loss
    alone = [losses_alone(model, torch.from_numpy(shard.document(i).astype(np.int64))) for i in range(5)]
    torch.testing.assert_close(found, torch.cat(alone).mean().float())


def test_losses_by_domain_count_responses_only():
    model, shard = tiny_target(qwen3_config(), dtype=torch.float64), random_shard(7)
    found = losses_by_domain(model, shard, ("even", "odd", "none"), row=50)
    by_domain: dict[str, list[torch.Tensor]] = {"even": [], "odd": []}
    for index in range(7):
        losses = losses_alone(model, torch.from_numpy(shard.document(index).astype(np.int64)))
        by_domain["odd" if index % 2 else "even"].append(losses[int(shard.prompt_lengths[index]) - 1 :])
    assert found.keys() == {"even", "odd", "all"}
    for name, parts in by_domain.items():
        torch.testing.assert_close(torch.tensor(found[name]), torch.cat(parts).mean().float())
