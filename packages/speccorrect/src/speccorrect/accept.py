"""The two exact acceptance rules. In: a tree or chain and the target's logits of its rows. Out: a `Verdict`.

*match*: the target draws one token per row under noise keyed by position; the walk follows the children that carry the
draws. Every emitted token is the target's own draw, so the text equals plain decoding under the same seed, for any tree.

*reject*: a sampled chain is tested slot by slot with u q(x) < p(x) against the q that it was drawn from, and the first
failure is redrawn from the residual (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318). The text has
the target's law, but is another one than plain decoding would give under that seed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from speccorrect.law import draw, probabilities
from speccorrect.noise import Stream, gumbel_rows, noise_key, uniform
from speccorrect.products import Proposal, TokenTree, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Where in whose stream of noise a round stands."""

    seed_B: Tensor  # int64
    request_B: Tensor  # int64: number of the request under that seed
    anchor_B: Tensor  # int64: absolute position of the anchor

    def at(self, offset: Tensor, stream: Stream = Stream.TARGET) -> Tensor:
        """Keys `[B, X]` for the tokens at `anchor + offset`; `offset` is `[B, X]` or `[X]`."""
        return noise_key(
            self.seed_B[:, None], self.request_B[:, None], self.anchor_B[:, None] + offset, stream
        )


def target_noise(keys: Keys, levels: int, vocab_size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The target's Gumbel noise `[B, levels, V]` for the tokens at depths 1..levels behind the anchor.

    Rows of equal depth share it, so it is computed once per position and reused by every row and by coupled drafts.
    It is computed in fp64 and rounded to `dtype`, that of the logits it is added to.
    """
    offset = torch.arange(1, levels + 1, device=keys.seed_B.device)
    return gumbel_rows(keys.at(offset).flatten(), vocab_size, dtype).unflatten(0, (-1, levels))


def target_draws(
    shaped_BNV: Tensor, depth_BN: Tensor, temperature_B: Tensor, noise_BLV: Tensor | None
) -> Tensor:
    """The target's own next token behind every row: greedy without noise, else the keyed draw of that position."""
    if noise_BLV is None:
        return shaped_BNV.argmax(dim=-1)
    scaled = noise_BLV.to(shaped_BNV.dtype) * temperature_B.to(shaped_BNV.dtype)[:, None, None]
    batch, levels = scaled.shape[:2]
    rows = depth_BN + levels * torch.arange(batch, device=depth_BN.device)[:, None]
    # whole rows at once: a gather over the vocabulary would read an index per number
    chosen = scaled.flatten(0, 1).index_select(0, rows.flatten()).view_as(shaped_BNV)
    return chosen.add_(shaped_BNV).argmax(dim=-1)


def match(tree: TokenTree, draws_BN: Tensor) -> Verdict:
    """Follow the target's draws down the tree. Siblings must carry distinct tokens, as every grower makes them."""
    agrees = (tree.tokens_BN == draws_BN.gather(1, tree.parent_BN)) & tree.valid_BN
    agrees[:, 0] = True
    # a node is on the walk iff it and all of its ancestors agree; distinct siblings make that a single path
    walked = ~(tree.sees_BNN & ~agrees[:, None, :]).any(dim=-1) & tree.valid_BN
    return _verdict(walked, tree.depth_BN, draws_BN)


def reject(
    proposal: Proposal, shaped_BNV: Tensor, temperature_B: Tensor, draft_temperature_B: Tensor, keys: Keys
) -> Verdict:
    """Test a chain against the q that it was drawn from: softmax(scores / draft temperature) over its candidates."""
    batch, slots = proposal.tokens_BK.shape
    p_BNV = probabilities(shaped_BNV, temperature_B)
    q_BKC = probabilities(proposal.scores_BKC, draft_temperature_B).to(p_BNV.dtype)
    offset = torch.arange(1, slots + 1, device=shaped_BNV.device)
    coin_BK = uniform(keys.at(offset, Stream.TEST), torch.zeros_like(offset))
    p_BK = p_BNV[:, :slots].gather(-1, proposal.tokens_BK[..., None]).squeeze(-1)
    q_BK = q_BKC.gather(-1, proposal.choice_BK[..., None]).squeeze(-1)
    passed_BK = coin_BK * q_BK < p_BK
    walked = torch.cat([passed_BK.new_ones(batch, 1), passed_BK.cumprod(dim=-1).bool()], dim=1)
    count_B = walked.sum(dim=-1)

    row_B = count_B - 1
    target_BV = p_BNV[torch.arange(batch, device=row_B.device), row_B]
    residual_BV = target_BV
    if slots:
        failed_B = row_B.clamp(max=slots - 1)
        q_BC = q_BKC[torch.arange(batch, device=row_B.device), failed_B] * (row_B < slots)[:, None]
        residual_BV = _subtract(target_BV, q_BC, proposal, failed_B)
    key_B1 = keys.at(count_B[:, None], Stream.RESIDUAL)
    ids = torch.arange(residual_BV.shape[-1], device=residual_BV.device)
    bonus_B = draw(residual_BV.log()[:, None], torch.ones_like(temperature_B), key_B1, ids).squeeze(1)
    path = torch.arange(slots + 1, device=row_B.device).expand(batch, -1)
    return Verdict(torch.minimum(path, row_B[:, None]), count_B, bonus_B)


def _subtract(target_BV: Tensor, q_BC: Tensor, proposal: Proposal, slot_B: Tensor) -> Tensor:
    ids = proposal.candidates.ids_BKC
    if ids is None:
        rest = target_BV - q_BC
    else:
        ids_BC = ids[torch.arange(ids.shape[0], device=ids.device), slot_B]
        rest = target_BV.scatter_add(-1, ids_BC, -q_BC)
    rest = rest.clamp(min=0)
    # no mass is left only where p and q agree to rounding: any token of p is then right
    return torch.where(rest.sum(dim=-1, keepdim=True) > 0, rest, target_BV)


def _verdict(walked_BN: Tensor, depth_BN: Tensor, draws_BN: Tensor) -> Verdict:
    batch, nodes = walked_BN.shape
    index = torch.arange(nodes, device=walked_BN.device)
    count_B = walked_BN.sum(dim=-1)
    last_B = (walked_BN * index).amax(dim=-1)
    # nodes off the walk are sent to a column behind the path, which is cut off
    column = torch.where(walked_BN, depth_BN, nodes)
    path = last_B[:, None].repeat(1, nodes + 1).scatter_(1, column, index.expand(batch, -1))[:, :nodes]
    path = torch.where(index < count_B[:, None], path, last_B[:, None])
    return Verdict(path, count_B, draws_BN.gather(1, last_B[:, None]).squeeze(1))
