"""The calibrated coupled tree: drafts that look at the noise the target will draw with.

Under *match* the emitted token at a position is argmax(log p / T + G), whatever was proposed. So a draft may use the
same G: the text stays what it was, and a tree ranks high what the target is about to draw. (Coupled chains: arXiv
2408.07978; lists of drafts: arXiv 2506.05632. Trees ranked this way, with fitted trust, are our own.)

Full trust misleads: where q is spread because the drafter does not know the path, G is mere noise. So a node scores

    log_softmax(a * log q + b * T * G)   with one more class, "none of the candidates", of logit o

with (a, b, o) per depth and per bin of the row's largest q. The extra class turns scores into probabilities that a
length policy can use. Never with *reject*: there a second use of the same noise biases the text.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BORDERS = (0.2, 0.4, 0.7, 0.9)
"""Borders between the bins of a row's largest probability: X = len(BORDERS) + 1 bins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coupling:
    """How far to trust the drafter and the noise, in fp32."""

    border_E: Tensor  # between the X bins of a row's largest probability
    trust_KX: Tensor  # a, per depth and bin
    noise_KX: Tensor  # b
    other_KX: Tensor  # o; -inf where the candidates are taken to be all there is

    @classmethod
    def constant(cls, slots: int, noise: float, device: torch.device | str = "cpu") -> "Coupling":
        """The form without a fit: log_softmax(log q + noise * T * G)."""
        ones = torch.ones(slots, len(BORDERS) + 1, device=device)
        return cls(
            border_E=torch.tensor(BORDERS, device=device),
            trust_KX=ones,
            noise_KX=noise * ones,
            other_KX=torch.full_like(ones, float("-inf")),
        )

    @property
    def slots(self) -> int:
        """K, the depths that the tables reach."""
        return self.trust_KX.shape[0]


def couple(scores_BWC: Tensor, noise_B1C: Tensor, depth: int, coupling: Coupling) -> Tensor:
    """Node scores of one depth from a head's log-probabilities and T * G at the candidates; -inf stays -inf."""
    top_BW = scores_BWC.amax(dim=-1).exp()
    bins_BW = torch.bucketize(top_BW, coupling.border_E)
    trust, noise, other = (
        table[depth][bins_BW][..., None]
        for table in (coupling.trust_KX, coupling.noise_KX, coupling.other_KX)
    )
    mixed = trust * scores_BWC + noise * noise_B1C.to(scores_BWC.dtype)
    mixed = mixed.masked_fill(scores_BWC == float("-inf"), float("-inf"))
    mass = torch.logaddexp(mixed.logsumexp(dim=-1, keepdim=True), other)
    # a dead lane has no mass: subtracting it would give NaN, which would win every selection
    return torch.where(mass == float("-inf"), float("-inf"), mixed - mass)
