"""A model goes in, an optimiser and its schedule come out: Muon for hidden matrices, AdamW for all else."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from specmodels.attention import Attention
from specmodels.layers.mlp import SwiGLU


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserConfig:
    """Peak learning rates and the decay of weights."""

    matrix_lr: float  # Muon's, for hidden matrices
    other_lr: float  # AdamW's, for embeddings, norms and biases
    momentum: float = 0.95  # Muon's
    betas: tuple[float, float] = (0.9, 0.95)  # AdamW's
    matrix_decay: float = 0.0  # decoupled weight decay of hidden matrices, times the learning rate
    clip: float = 1.0  # largest norm of all gradients together


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Share of the peak learning rate at every step.

    "wsd" rises, stays and falls linearly to zero at the end: until the fall begins nothing depends on `steps`, so a run
    can be prolonged from there. "cosine" falls from the end of the rise on.
    """

    steps: int  # optimiser steps of the whole run
    warmup: int  # steps of the linear rise
    kind: Literal["wsd", "cosine"] = "wsd"
    decay: float = 0.25  # share of the steps that fall; wsd only

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < self.steps:
            raise ValueError(
                f"warmup: got {self.warmup}, expected 0 to {self.steps - 1}; use fewer steps of warm-up"
            )
        if not 0.0 < self.decay <= 1.0:
            raise ValueError(
                f"decay: got {self.decay}, expected above 0 and at most 1; give a share of the steps"
            )

    @property
    def decay_start(self) -> int:
        """First step of the fall."""
        return self.steps - round(self.decay * self.steps) if self.kind == "wsd" else self.warmup

    def factor(self, step: int) -> float:
        """The share of step 0, 1, ...; it is above zero on every step of the run."""
        rise = min(1.0, (step + 1) / (self.warmup + 1))
        past = (step - self.decay_start + 1) / (self.steps - self.decay_start + 1)
        if past <= 0:
            return rise
        if self.kind == "cosine":
            return rise * 0.5 * float(1.0 + torch.cos(torch.tensor(past * torch.pi, dtype=torch.float64)))
        return rise * max(0.0, 1.0 - past)


def orthogonalise(matrix_NRC: Tensor, iterations: int = 5) -> Tensor:
    """Move all singular values of every matrix near one by Newton-Schulz steps, keeping its singular vectors.

    The quintic is tuned for speed, not accuracy: values land between about 0.7 and 1.2, which serves an update as well.
    """
    tall = matrix_NRC.shape[-2] > matrix_NRC.shape[-1]
    x = matrix_NRC.mT if tall else matrix_NRC
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum whose update of a matrix is orthogonalised.

    A fused matrix is several maps stacked by rows; each is orthogonalised alone. `parts` names their rows in the order
    of the parameters. Parts of one shape go through the iteration as one batch.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        parts: Sequence[tuple[int, ...]],
        *,
        lr: float,
        momentum: float,
        weight_decay: float = 0.0,
    ) -> None:
        for parameter, rows in zip(parameters, parts, strict=True):
            if parameter.ndim != 2 or sum(rows) != parameter.shape[0]:
                raise ValueError(
                    f"Muon: got shape {tuple(parameter.shape)} with parts {rows}, expected a matrix whose rows they add "
                    "up to; give other parameters to AdamW"
                )
        super().__init__(list(parameters), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._parts = {id(parameter): rows for parameter, rows in zip(parameters, parts, strict=True)}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # nobody needs the closure's value
        """Update every parameter that has a gradient."""
        assert closure is None, closure
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(state["momentum"], group["momentum"])
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                rows = self._parts[id(parameter)]
                for target, part in zip(parameter.split(rows), update.split(rows), strict=True):
                    by_shape.setdefault(part.shape, []).append((target, part))
            for shape, pairs in by_shape.items():
                scale = max(1.0, shape[0] / shape[1]) ** 0.5
                updates = orthogonalise(torch.stack([part for _, part in pairs]))
                for (target, _), update in zip(pairs, updates, strict=True):
                    target.add_(update, alpha=-group["lr"] * scale)


class Optimiser(Protocol):
    """What a loop needs of an optimiser."""

    def step(self, factor: float) -> Tensor:
        """Update and forget the gradients at a share of the peak learning rates; returns the gradients' norm."""

    def state(self) -> list[dict[str, Any]]:
        """What a checkpoint has to hold."""

    def load(self, state: list[dict[str, Any]]) -> None:
        """Continue from a checkpoint's state."""


class MixedOptimiser:
    """Muon and AdamW as one, with a common share of their peak learning rates."""

    def __init__(
        self, modules: Iterable[nn.Module], config: OptimiserConfig, *, table_rows: int | None = None
    ) -> None:
        """Matrices of `table_rows` rows are tables of a vocabulary, which AdamW serves better: they are sparse."""
        self.config = config
        matrices: list[nn.Parameter] = []
        parts: list[tuple[int, ...]] = []
        others: list[nn.Parameter] = []
        for module in modules:
            rows = fused_rows(module)
            for name, parameter in module.named_parameters():
                table = parameter.shape[0] == table_rows or name.endswith(("embedding", "head.weight"))
                if parameter.ndim == 2 and not table:
                    matrices.append(parameter)
                    parts.append(rows.get(id(parameter), (parameter.shape[0],)))
                else:
                    others.append(parameter)
        self._parameters = matrices + others
        self._optimisers: list[tuple[torch.optim.Optimizer, float]] = []
        if matrices:
            muon = Muon(
                matrices,
                parts,
                lr=config.matrix_lr,
                momentum=config.momentum,
                weight_decay=config.matrix_decay,
            )
            self._optimisers.append((muon, config.matrix_lr))
        if others:
            adamw = torch.optim.AdamW(others, lr=config.other_lr, betas=config.betas, weight_decay=0.0)
            self._optimisers.append((adamw, config.other_lr))

    def step(self, factor: float) -> Tensor:
        """Clip, update and forget the gradients; returns their norm before clipping."""
        norm = nn.utils.clip_grad_norm_(self._parameters, self.config.clip)
        for optimiser, peak in self._optimisers:
            for group in optimiser.param_groups:
                group["lr"] = peak * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return norm

    def state(self) -> list[dict[str, Any]]:
        """What a checkpoint has to hold."""
        return [optimiser.state_dict() for optimiser, _ in self._optimisers]

    def load(self, state: list[dict[str, Any]]) -> None:
        """Continue from a checkpoint's state."""
        for (optimiser, _), saved in zip(self._optimisers, state, strict=True):
            optimiser.load_state_dict(saved)


class GroupedOptimiser:
    """Several optimisers of different parts as one; each clips its own part's gradients."""

    def __init__(self, parts: Sequence[MixedOptimiser]) -> None:
        self._parts = tuple(parts)

    def step(self, factor: float) -> Tensor:
        """Update all parts; returns the norm of all gradients before clipping."""
        return torch.stack([part.step(factor) for part in self._parts]).norm()

    def state(self) -> list[dict[str, Any]]:
        """What a checkpoint has to hold."""
        return [{"parts": [part.state() for part in self._parts]}]

    def load(self, state: list[dict[str, Any]]) -> None:
        """Continue from a checkpoint's state."""
        for part, saved in zip(self._parts, state[0]["parts"], strict=True):
            part.load(saved)


def fused_rows(module: nn.Module) -> dict[int, tuple[int, ...]]:
    """Rows of the maps inside every fused matrix, by the parameter's id."""
    rows: dict[int, tuple[int, ...]] = {}
    for child in module.modules():
        if isinstance(child, Attention):
            keys = child.kv_heads * child.head_dim
            rows[id(child.qkv.weight)] = (child.heads * child.head_dim, keys, keys)
        elif isinstance(child, SwiGLU):
            half = child.gate_up.weight.shape[0] // 2
            rows[id(child.gate_up.weight)] = (half, half)
    return rows
