"""Rows in, their feed-forward output out: a router chooses few of many experts for every row.

Letters: E experts, U inner width of an expert, C the experts chosen for a row, Q rows of all batches one after the other.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specmodels.layers.mlp import SwiGLU
from specmodels.llada2.config import Llada2Config


class Routing(NamedTuple):
    """The chosen experts of every row, in no order, and their weights in at least fp32."""

    expert_QC: Tensor
    weight_QC: Tensor


class Router(nn.Module):
    """Scores of experts by a sigmoid; the bias takes part in the choice alone, never in the weights."""

    def __init__(self, config: Llada2Config) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        # moved by the load of the experts, not by a gradient
        self.bias = nn.Parameter(torch.empty(config.num_experts), requires_grad=False)

    def forward(self, x_QD: Tensor) -> Routing:
        # narrow scores tie, and a tie is broken by chance: another expert
        wide = torch.promote_types(x_QD.dtype, torch.float32)
        with torch.autocast(x_QD.device.type, enabled=False):
            score_QE = F.linear(x_QD.to(wide), self.weight.to(wide)).sigmoid()
        choice_QE = self._within_groups(score_QE + self.bias.to(wide))
        expert_QC = choice_QE.topk(self.config.experts_per_row, sorted=False).indices
        weight_QC = score_QE.gather(-1, expert_QC)
        if self.config.normalise_routing:
            weight_QC = weight_QC / (weight_QC.sum(dim=-1, keepdim=True) + 1e-20)
        return Routing(expert_QC, weight_QC * self.config.routed_scale)

    def _within_groups(self, choice_QE: Tensor) -> Tensor:
        """Only the best groups stay open; a group is as good as its two best experts together."""
        groups = choice_QE.unflatten(-1, (self.config.expert_groups, -1))
        best = groups.topk(min(2, groups.shape[-1])).values.sum(dim=-1)
        kept = best.topk(self.config.groups_per_row, sorted=False).indices
        closed = torch.ones_like(best, dtype=torch.bool).scatter(-1, kept, False)
        return groups.masked_fill(closed[..., None], float("-inf")).flatten(-2)


class Experts(nn.Module):
    """Gated feed-forward blocks side by side; a row passes the chosen ones alone."""

    def __init__(self, config: Llada2Config) -> None:
        super().__init__()
        experts, inner, width = config.num_experts, config.expert_size, config.hidden_size
        self.gate_EUD = nn.Parameter(torch.empty(experts, inner, width))
        self.up_EUD = nn.Parameter(torch.empty(experts, inner, width))
        self.down_EDU = nn.Parameter(torch.empty(experts, width, inner))

    def forward(self, x_QD: Tensor, routing: Routing) -> Tensor:
        """Every chosen expert reads its weights once, for all of its rows together; the others are not touched."""
        chosen = routing.expert_QC.shape[1]
        # rows of one expert side by side, so that it is one product however many there are
        order = routing.expert_QC.flatten().argsort(stable=True)
        counts_E = routing.expert_QC.flatten().bincount(minlength=self.gate_EUD.shape[0])
        rows_RD = x_QD[order // chosen]
        inner_RU = F.silu(products(rows_RD, self.gate_EUD, counts_E)) * products(
            rows_RD, self.up_EUD, counts_E
        )
        out_RD = products(inner_RU, self.down_EDU, counts_E)
        out_QCD = out_RD[order.argsort()].unflatten(0, (-1, chosen))
        return (out_QCD * routing.weight_QC[..., None]).sum(dim=1).to(x_QD.dtype)


def products(rows_RD: Tensor, weight_EUD: Tensor, counts_E: Tensor) -> Tensor:
    """`rows @ weight.T` with a weight per group of rows: the first `counts_E[0]` rows take the first weight, and so on.

    On CUDA it is one launch and the counts stay there; elsewhere each group with rows is a product of its own.
    """
    if rows_RD.is_cuda and hasattr(F, "grouped_mm"):
        ends_E = counts_E.cumsum(0).to(torch.int32)
        return F.grouped_mm(rows_RD, weight_EUD.mT, offs=ends_E)
    groups = rows_RD.split(counts_E.tolist())
    return torch.cat([F.linear(group, weight_EUD[e]) for e, group in enumerate(groups) if len(group)])


class MixtureOfExperts(nn.Module):
    """The chosen experts' weighted sum, and a shared block that every row passes."""

    def __init__(self, config: Llada2Config) -> None:
        super().__init__()
        self.router = Router(config)
        self.experts = Experts(config)
        shared = config.shared_experts * config.expert_size
        self.shared = SwiGLU(config.hidden_size, shared) if shared else None

    def forward(self, x_BQD: Tensor) -> Tensor:
        flat_QD = x_BQD.flatten(0, -2)
        out_BQD = self.experts(flat_QD, self.router(flat_QD)).view_as(x_BQD)
        return out_BQD if self.shared is None else out_BQD + self.shared(x_BQD)
