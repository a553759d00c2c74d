"""Log-probabilities of a drafter (q) and a target (p) over one vocabulary go in, how far they are apart comes out, row by row.

A draft is accepted with probability sum min(p, q) = 1 - sum |p - q| / 2: that is what these losses are after. All take
the logarithms, because log(softmax) of a rounded zero is not finite. Letters: N rows of any shape, V vocabulary.
"""

import torch
from torch import Tensor


def forward_kl(log_q_NV: Tensor, log_p_NV: Tensor) -> Tensor:
    """KL(p, q): q has to cover whatever p does. Tokens that p excludes count nothing."""
    p_NV = log_p_NV.exp()
    return (p_NV * (log_p_NV - log_q_NV).masked_fill(p_NV == 0, 0.0)).sum(dim=-1)


def reverse_kl(log_q_NV: Tensor, log_p_NV: Tensor, clip: float | None = None) -> Tensor:
    """KL(q, p): q must not propose what p would refuse. Rows beyond `clip` nats count as that much and teach nothing.

    The clip is on the row's own value. Dividing by the batch's weight first, as is done elsewhere, makes its meaning
    depend on how many anchors a batch holds.
    """
    q_NV = log_q_NV.exp()
    value_N = (q_NV * (log_q_NV - log_p_NV).masked_fill(q_NV == 0, 0.0)).sum(dim=-1)
    return value_N if clip is None else value_N.clamp(max=clip)


def jensen_shannon(log_q_NV: Tensor, log_p_NV: Tensor) -> Tensor:
    """Mean of the divergences of both from their mean; at most log 2."""
    log_mean_NV = torch.logaddexp(log_q_NV, log_p_NV) - torch.log(log_q_NV.new_tensor(2.0))
    return 0.5 * (forward_kl(log_mean_NV, log_p_NV) + forward_kl(log_mean_NV, log_q_NV))


def total_variation(log_q_NV: Tensor, log_p_NV: Tensor) -> Tensor:
    """Half the sum of |p - q|: the probability that a draft from q is refused."""
    return 0.5 * (log_p_NV.exp() - log_q_NV.exp()).abs().sum(dim=-1)


def acceptance(log_q_NV: Tensor, log_p_NV: Tensor) -> Tensor:
    """The sum of min(p, q): the probability that a draft from q is accepted."""
    return torch.minimum(log_p_NV, log_q_NV).exp().sum(dim=-1)


def log_acceptance(log_q_NV: Tensor, log_p_NV: Tensor) -> Tensor:
    """Minus the logarithm of the acceptance (arXiv 2602.23881)."""
    return -torch.logsumexp(torch.minimum(log_p_NV, log_q_NV), dim=-1)


def hybrid(log_q_NV: Tensor, log_p_NV: Tensor, sharpness: float = 3.0) -> Tensor:
    """Forward KL while little is accepted, total variation as acceptance grows (arXiv 2602.23881).

    The share of the first is exp(-sharpness x acceptance), without a gradient of its own.
    """
    share_N = torch.exp(-sharpness * acceptance(log_q_NV, log_p_NV).detach())
    divergence_N, distance_N = forward_kl(log_q_NV, log_p_NV), total_variation(log_q_NV, log_p_NV)
    return share_N * divergence_N + (1 - share_N) * distance_N
