"""A target and packed batches go in, the next-token loss that trains it comes out, and its losses by domain."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specmodels.kv import RowsMemory
from specmodels.qwen3 import Qwen3
from spectrain.data import Batch, Shard, document_mask, pack, plan_rows
from spectrain.loop import Loss
from spectrain.objectives.next_token import next_token_loss, next_tokens, token_losses


def next_token_objective(model: Qwen3, *, compiled: bool) -> Callable[[Batch, torch.Generator], Loss]:
    """The objective of a run that trains `model` on all tokens, prompts included.

    Compiled, all batches must have one shape; it saves a quarter of the time and costs a minute at the start.
    """

    def loss_of(
        token_BS: Tensor, position_BS: Tensor, mask_BST: Tensor, label_BS: Tensor, weight_BS: Tensor
    ) -> Tensor:
        hidden_BSD = model(token_BS, position_BS, RowsMemory(mask_BST)).hidden_BQD
        return next_token_loss(model.logits(hidden_BSD), label_BS, weight_BS)

    run = torch.compile(loss_of) if compiled else loss_of

    def objective(batch: Batch, generator: torch.Generator) -> Loss:
        del generator  # nothing here is random
        label_BS, weight_BS = next_tokens(batch.token_BS, batch.document_BS)
        mask_BST = document_mask(batch.document_BS)
        loss = run(batch.token_BS, batch.position_BS, mask_BST, label_BS, weight_BS)
        return Loss(loss, {})

    return objective


@torch.no_grad()
def losses_by_domain(model: Qwen3, shard: Shard, domains: Sequence[str], *, row: int) -> dict[str, float]:
    """Mean nats per token of every document's response in a shard, by domain and over all."""
    order = torch.arange(len(shard)).numpy()
    rows = plan_rows(shard.lengths, order, row)
    domain_N = torch.from_numpy(shard.domains.astype("int64"))
    total, count = torch.zeros(len(domains)), torch.zeros(len(domains))
    for start in range(0, len(rows), 8):
        batch = pack(shard, rows[start : start + 8], row)
        hidden_BSD = model(
            batch.token_BS, batch.position_BS, RowsMemory(document_mask(batch.document_BS))
        ).hidden_BQD
        label_BS, weight_BS = next_tokens(batch.token_BS, batch.document_BS)
        # the row before a response predicts its first token
        weight_BS = weight_BS * batch.response_BS.roll(-1, dims=1)
        loss_BS = token_losses(model.logits(hidden_BSD), label_BS) * weight_BS
        domain_BS = domain_N[batch.document_BS.clamp_min(0)]
        total.scatter_add_(0, domain_BS.flatten(), loss_BS.flatten())
        count.scatter_add_(0, domain_BS.flatten(), weight_BS.flatten())
    found = {name: float(total[i] / count[i]) for i, name in enumerate(domains) if count[i] > 0}
    return found | {"all": float(total.sum() / count.sum())}
