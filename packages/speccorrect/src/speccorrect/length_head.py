"""AdaFlash's head of lengths: the drafter's hidden rows in, the share of the block worth verifying out (arXiv 2607.19223).

It reads no drafted token. Its output jumps from block to block, so decisions use a moving mean of it.
"""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speccorrect.source import HeadSource

SMOOTHING = 0.3
"""Weight of the newest block in the moving mean."""

FLAG: Final = "use_thresh_head_two_model"
TENSORS: Final = {
    f"{ours}.{part}": (f"thresh_head_two_model.{public}.{part}",)
    for ours, public in (("down", "down"), ("residual", "res.0"), ("out", "out"))
    for part in ("weight", "bias")
}


class LengthHead(nn.Module):
    """Mean and last row of a block, through a bottleneck, to one logit."""

    def __init__(self, hidden_size: int, width: int = 256) -> None:
        super().__init__()
        self.down = nn.Linear(2 * hidden_size, width)
        self.residual = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, hidden_BRD: Tensor) -> Tensor:
        """Logit `[B]` of the share of the block's rows, the anchor included. Gradients stop at the rows."""
        rows = hidden_BRD.detach().to(self.down.weight.dtype)
        seen_BX = torch.cat([rows.mean(dim=1), rows[:, -1]], dim=-1)
        narrow_BR = F.silu(self.down(seen_BX))
        narrow_BR = narrow_BR + F.silu(self.residual(narrow_BR))
        return self.out(narrow_BR).squeeze(-1).float()


def smooth(share_B: Tensor, before_B: Tensor) -> Tensor:
    """The moving mean after one more block; a negative one stands for a request that has none yet."""
    return torch.where(before_B < 0, share_B, torch.lerp(before_B, share_B, SMOOTHING))


def take_length_head(source: HeadSource) -> LengthHead | None:
    """The head that a checkpoint carries beside its corrector, if any; its keys and tensors are taken out."""
    if not source.take_key(FLAG, bool, default=False):
        return None
    # the other forms of the head foretell something else under the same tensor names
    if not source.take_key("thresh_head_direct_len", bool, default=False):
        raise ValueError(
            "config key 'thresh_head_direct_len': got false, expected true: of AdaFlash's heads, only the one that"
            " foretells a length is supported"
        )
    width = source.take_key("thresh_head_bottleneck_dim", int, 256)
    if width < 1:
        raise ValueError(f"config key 'thresh_head_bottleneck_dim': got {width}, expected at least 1")
    head = LengthHead(source.shape.hidden_size, width)
    source.fill(head, TENSORS)
    return head


def save_length_head(head: LengthHead) -> tuple[dict[str, bool | int], dict[str, Tensor]]:
    """Config keys and tensors under the public names."""
    own = head.state_dict()
    keys = {FLAG: True, "thresh_head_direct_len": True, "thresh_head_bottleneck_dim": head.out.in_features}
    return keys, {public[0]: own[ours] for ours, public in TENSORS.items()}
