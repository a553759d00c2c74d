"""A mixture-of-experts model goes in; its routers' biases are moved so that every expert gets its share of the rows.

No loss takes part: the bias of an expert with more rows than its share falls by a fixed step, and of one with less rises.
"""

import torch
from torch import Tensor, nn

from specmodels.llada2.experts import Router, Routing


class LoadBalance:
    """Counts the choices of all routers of a model while it trains."""

    def __init__(self, model: nn.Module, *, rate: float) -> None:
        """`rate` is the step of a bias per update."""
        self.rate = rate
        self._counts: dict[Router, Tensor] = {}
        for module in model.modules():
            if isinstance(module, Router):
                module.register_forward_hook(self._count)

    def _count(self, router: nn.Module, inputs: object, routing: Routing) -> None:
        del inputs
        assert isinstance(router, Router), router
        if not router.training:
            return
        counts_E = routing.expert_QC.flatten().bincount(minlength=router.config.num_experts)
        self._counts[router] = self._counts.get(router, torch.zeros_like(counts_E)) + counts_E

    @torch.no_grad()
    def update(self) -> Tensor:
        """Move the biases and forget the counts; returns the largest load over the mean one, of all routers."""
        worst = [counts_E.max() / counts_E.float().mean() for counts_E in self._counts.values()]
        for router, counts_E in self._counts.items():
            router.bias.add_((counts_E.float().mean() - counts_E).sign(), alpha=self.rate)
        self._counts.clear()
        return torch.stack(worst).max() if worst else torch.ones(())
