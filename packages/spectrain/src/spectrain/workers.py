"""Several processes share one run: each takes its share of a step's batches, then all of them take the same step.

`torchrun` starts the processes and says in the environment who is who. What a run computes does not depend on their
number: a step's batches are numbered, and their gradients are summed.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard

from specmodels.qwen3 import Qwen3

_PATIENCE = timedelta(hours=12)  # the others wait while the first one makes the data


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """A process among its equals."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """The one that writes files and measures."""
        return self.rank == 0

    def share(self, numbers: range) -> range:
        """The batches of this process."""
        if len(numbers) % self.count:
            raise ValueError(
                f"accumulation: got {len(numbers)} batches of a step, expected a multiple of the {self.count} processes"
            )
        return numbers[self.rank :: self.count]

    def wait(self) -> None:
        """Go on when all have come here."""
        if self.count > 1:
            distributed.barrier()

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up the gradients of all processes, in one message."""
        if self.count == 1:
            return
        learnt = [parameter for parameter in parameters if parameter.requires_grad]
        # a parameter that no batch reached keeps no gradient, as in a single process
        reached = torch.tensor([float(parameter.grad is not None) for parameter in learnt])
        reached = self._sum(reached.to(learnt[0].device))
        used = [parameter for parameter, any_of in zip(learnt, reached.tolist(), strict=True) if any_of]
        flat = self._sum(
            torch.cat(
                [
                    torch.zeros_like(parameter).flatten()
                    if parameter.grad is None
                    else parameter.grad.flatten()
                    for parameter in used
                ]
            )
        )
        for parameter, gradient in zip(used, flat.split([p.numel() for p in used]), strict=True):
            parameter.grad = gradient.view_as(parameter)

    def sum_values(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Add up named scalars."""
        if self.count == 1:
            return dict(values)
        total = self._sum(torch.stack([value.detach().float() for value in values.values()]))
        return dict(zip(values, total, strict=True))

    @staticmethod
    def _sum(value: Tensor) -> Tensor:
        distributed.all_reduce(value)
        return value


ALONE = Workers()


@contextmanager
def workers_of(device: str) -> Iterator[Workers]:
    """Meet the processes that `torchrun` started beside this one, until the end of the block; alone without it."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield ALONE
        return
    backend = "nccl" if device.startswith("cuda") else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group(backend, timeout=_PATIENCE)
    try:
        yield Workers(rank=distributed.get_rank(), count=count)
    finally:
        distributed.destroy_process_group()


def shard_target(target: Qwen3, workers: Workers) -> None:
    """Spread the layers of a frozen target over the processes (FSDP2); each gathers a layer when it runs.

    Drafters are small and stay whole. From here on the processes have to run the target in step.
    """
    if workers.count > 1:
        for layer in target.layers:
            fully_shard(layer)
