"""A frozen target, a drafter with its head, and packed documents go in; training and its measure come out.

Drafter and head learn together: the head gets rows that suit it, which a frozen drafter would not give it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from speccorrect.contract import Corrector
from speccorrect.grow import grow_chain
from speccorrect.length_head import LengthHead, save_length_head
from speccorrect.registry import corrector_spec
from specmodels.checkpoint import save_drafter
from specmodels.checkpoint.files import SINGLE, TensorFolder, read_json, write_json, write_tensors
from specmodels.dflash import DFlash
from specmodels.qwen3 import Qwen3
from specmodels.qwen3.config import Qwen3Config
from spectrain.anchors import anchor_candidates, sample_anchors
from spectrain.data import Batch, Shard, pack, plan_rows
from spectrain.loop import Loss
from spectrain.objectives.dels import Fusion, fit_fusion
from spectrain.objectives.dflash import accepted
from spectrain.objectives.dspark import CROSS_ENTROPY
from spectrain.recipes import Moment, Recipe
from spectrain.taught import drafted, offer, teach, teach_text


class Pair(nn.Module):
    """A drafter and its head as one module, for a loop that trains both."""

    def __init__(self, drafter: DFlash, head: nn.Module) -> None:
        super().__init__()
        self.drafter, self.head = drafter, head


class NumberedBatch(NamedTuple):
    """A batch that knows which of the run it is: some losses change along the way."""

    number: int
    token_BS: Tensor
    document_BS: Tensor
    position_BS: Tensor
    response_BS: Tensor

    @property
    def batch(self) -> Batch:
        """The batch without its number."""
        return Batch(*self[1:])


def numbered(batch: Callable[[int], Batch]) -> Callable[[int], NumberedBatch]:
    """The same batches with their numbers."""
    return lambda number: NumberedBatch(number, *batch(number))


def head_objective(
    target: Qwen3,
    pair: Pair,
    recipe: Recipe,
    *,
    steps: int,
    anchors: int,
    gamma: float,
    temperature_D: Tensor,
    cross_entropy: float = CROSS_ENTROPY,
    compiled: bool = False,
    accumulation: int = 1,
) -> Callable[[NumberedBatch, torch.Generator], Loss]:
    """The objective of a run; `steps` are those of its schedule, `temperature` stands by document of the shard.

    Compiled, all batches must have one shape; heads themselves are not compiled.
    """
    run = torch.compile(drafted) if compiled else drafted

    def objective(numbered: NumberedBatch, generator: torch.Generator) -> Loss:
        batch = numbered.batch
        places = sample_anchors(anchor_candidates(batch), anchors, generator)
        taught = (
            teach(target, pair.drafter, batch, places, distribution=recipe.distribution, run=run)
            if recipe.backbone
            else teach_text(target, pair.drafter.config, batch, places)
        )
        moment = Moment(
            step=numbered.number // accumulation,
            steps=steps,
            gamma=gamma,
            temperature_M=temperature_D[taught.document_M.clamp_min(0).cpu()].to(taught.document_M.device),
            cross_entropy=cross_entropy,
        )
        return recipe.loss(taught, pair.head, moment)

    return objective


@torch.no_grad()
def expected_lengths(
    target: Qwen3,
    drafter: DFlash,
    corrector: Corrector[Any],
    shard: Shard,
    domains: Sequence[str],
    *,
    row: int,
    anchors: int = 12,
    rows: int = 8,
) -> dict[str, float]:
    """Tokens that a round behind a random place of the shard's responses yields, by domain and over all of them.

    The chain is the head's own greedy one, each token behind those that it drafted itself. The responses have to be the
    target's greedy ones: a draft is accepted where it equals the text. The places are the same at every call.
    """
    plan = plan_rows(shard.lengths, torch.arange(len(shard)).numpy(), row)
    domain_N = torch.from_numpy(shard.domains.astype("int64"))
    total, count = torch.zeros(len(domains)), torch.zeros(len(domains))
    for start in range(0, len(plan), rows):
        batch = pack(shard, plan[start : start + rows], row)
        generator = torch.Generator().manual_seed(start)
        places = sample_anchors(anchor_candidates(batch), anchors, generator)
        taught = teach(target, drafter, batch, places, distribution=False)
        prepared = corrector.prepare(taught.block, taught.borrowed, offer(taught, corrector.support))
        proposal = grow_chain(corrector, prepared, taught.block.slots)
        right_MK = ((proposal.tokens_BK == taught.label_MK) & taught.trained_MK).cpu()
        counted_M = taught.trained_MK[:, 0].float().cpu()
        domain_M = domain_N[taught.document_M.clamp_min(0).cpu()]
        total.scatter_add_(0, domain_M, (accepted(right_MK) + 1) * counted_M)
        count.scatter_add_(0, domain_M, counted_M)
    found = {name: float(total[i] / count[i]) for i, name in enumerate(domains) if count[i] > 0}
    return found | {"all": float(total.sum() / count.sum())}


@torch.no_grad()
def fit_local(
    target: Qwen3,
    drafter: DFlash,
    head: Any,
    batches: Sequence[Batch],
    *,
    anchors: int,
    limit: int,
    seed: int = 0,
) -> Fusion:
    """How much of a local language model helps this drafter, from at most `limit` slots of the batches."""
    base, local, label = [], [], []
    for number, batch in enumerate(batches):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
        places = sample_anchors(anchor_candidates(batch), anchors, generator)
        taught = teach(target, drafter, batch, places, distribution=False)
        prepared = head.prepare(taught.block, taught.borrowed, offer(taught, None))
        known_MK = taught.trained_MK.clone()
        known_MK[:, : head.config.plain_slots] = False
        base.append(taught.base_MKV[known_MK])
        local.append(head.local_logits(prepared, taught.label_MK)[known_MK])
        label.append(taught.label_MK[known_MK])
    unigram_V = (head.counts.float() + head.config.smoothing).log()
    kept = torch.randperm(sum(map(len, label)), generator=torch.Generator().manual_seed(seed))[:limit]
    return fit_fusion(torch.cat(base)[kept], torch.cat(local)[kept], unigram_V, torch.cat(label)[kept])


def save_pair(
    drafter: DFlash,
    name: str,
    head: nn.Module,
    target: Qwen3Config,
    folder: Path,
    *,
    dtype: torch.dtype,
    length_head: LengthHead | None = None,
) -> None:
    """Write one folder with the drafter in its public layout and the head of that name in its own beside it."""
    save_drafter(drafter, target, folder, dtype=dtype)
    keys, tensors = corrector_spec(name).save(head)
    if length_head is not None:
        more_keys, more_tensors = save_length_head(length_head)
        keys, tensors = keys | more_keys, tensors | more_tensors
    files = TensorFolder(folder)
    stored = dict(files.read_each(sorted(files.names)))
    config: dict[str, Any] = read_json(folder / "config.json")
    section: Mapping[str, Any] = config["dflash_config"]
    # both may say the same, as DSpark does of the layout of its slots
    clash = {key for key in section.keys() & keys.keys() if section[key] != keys[key]}
    clash |= stored.keys() & tensors.keys()
    assert not clash, f"drafter and head both write {sorted(clash)}"
    cast = {
        key: tensor.to(dtype) if tensor.is_floating_point() else tensor for key, tensor in tensors.items()
    }
    write_tensors(folder / SINGLE, stored | cast)
    write_json(folder / "config.json", config | {"dflash_config": {**section, **keys}})
