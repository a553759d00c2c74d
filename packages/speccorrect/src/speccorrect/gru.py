"""A one-layer GRU without biases, step by step: inputs and a state in, the next state out.

Written out because the library's own repacks its weights and hides the split that matters here: gates of inputs that
are known early are one product for all steps. Parameters keep the names and the order (reset, update, new) of
`torch.nn.GRU`. X is the width of the input, S of the state.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Gru(nn.Module):
    """Products run in the parameters' dtype, gates and states in fp32."""

    def __init__(self, input_size: int, state_size: int) -> None:
        super().__init__()
        self.state_size = state_size
        self.input_weight = nn.Parameter(torch.empty(3 * state_size, input_size))
        self.state_weight = nn.Parameter(torch.empty(3 * state_size, state_size))

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """Uniform within 1 / sqrt(S), as the library does."""
        bound = self.state_size**-0.5
        self.input_weight.uniform_(-bound, bound, generator=generator)
        self.state_weight.uniform_(-bound, bound, generator=generator)

    def gates(self, input_BWX: Tensor) -> Tensor:
        """The inputs' share `[B, W, 3S]` of the gates."""
        return F.linear(input_BWX.to(self.input_weight.dtype), self.input_weight).float()

    def first(self, gates_BWS: Tensor) -> Tensor:
        """The state after one input from a zero state, where the recurrent product is nothing."""
        _, update, new = gates_BWS.chunk(3, dim=-1)
        return torch.sigmoid(-update) * torch.tanh(new)

    def step(self, gates_BWS: Tensor, state_BWS: Tensor) -> Tensor:
        """The state after one more input."""
        recurrent = F.linear(state_BWS.to(self.state_weight.dtype), self.state_weight).float()
        width = 2 * self.state_size
        reset, update = torch.sigmoid(gates_BWS[..., :width] + recurrent[..., :width]).chunk(2, dim=-1)
        new = torch.tanh(torch.addcmul(gates_BWS[..., width:], reset, recurrent[..., width:]))
        return torch.lerp(new, state_BWS, update)
