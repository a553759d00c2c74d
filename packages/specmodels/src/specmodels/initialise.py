"""Random weights for training from scratch: the one place that draws them."""

import torch
from torch import nn

from specmodels.dflash.conv import BlockConv
from specmodels.layers.norm import RMSNorm
from specmodels.layers.rope import Rope


@torch.no_grad()
def initialise(
    model: nn.Module, generator: torch.Generator, *, std: float = 0.02, residual_layers: int = 0
) -> None:
    """Matrices normal with deviation `std`, biases zero, norms one, convolutions the identity; in place.

    With `residual_layers` above 0, matrices that write into the residual stream shrink by sqrt(2 x layers), so that the
    stream's size at the start does not grow with depth.
    """
    norms = {id(module.weight) for module in model.modules() if isinstance(module, RMSNorm)}
    for name, parameter in model.named_parameters():
        if id(parameter) in norms:
            parameter.fill_(1.0)
        elif parameter.ndim < 2:
            parameter.zero_()
        else:
            writes = name.endswith(("attention.output.weight", ".down.weight", "experts.down_EDU"))
            scale = (2 * residual_layers) ** -0.5 if residual_layers and writes else 1.0
            parameter.normal_(0.0, std * scale, generator=generator)
    for module in model.modules():
        if isinstance(module, Rope):
            module.fill()
        elif isinstance(module, BlockConv):
            module.set_identity()
