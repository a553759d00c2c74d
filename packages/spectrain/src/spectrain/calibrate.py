"""Trajectories of the target go in, the calibration of a drafter and its head comes out; nothing is decoded here.

A trajectory is text that plain decoding drew under keyed noise. Behind every anchor of it the drafter's block is scored
along the text, so that all of what a draft could have done is known: which token the target drew, how probable both
found it, and which noise decided. The fit is maximum likelihood of the drawn tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from speccorrect.candidates import select_candidates
from speccorrect.contract import Corrector
from speccorrect.couple import BORDERS, Coupling
from speccorrect.noise import gumbel, noise_key
from specmodels.dflash import DFlash
from specmodels.qwen3 import Qwen3
from specrun.calibration import Calibration
from spectrain.anchors import Anchors, anchor_candidates
from spectrain.data import Batch
from spectrain.taught import score, teach

DRAFT_TEMPERATURES = (0.0, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One answer of plain decoding, and the noise it was drawn with."""

    prompt: list[int]
    response: list[int]
    seed: int
    request: int
    temperature: float  # above 0


class Seen(NamedTuple):
    """Slots M x K along trajectories, scored over C candidates."""

    scores_MKC: Tensor  # the head's log-probabilities behind the text's own tokens
    noise_MKC: Tensor  # temperature x the target's noise at the candidates
    place_MK: Tensor  # where the drawn token stands among them; C where it does not
    target_MK: Tensor  # log-probability of the drawn token under the target's law
    known_MK: Tensor  # bool: the slot is inside the text


@torch.no_grad()
def observe(
    target: Qwen3,
    drafter: DFlash,
    corrector: Corrector[Any],
    trajectories: Iterable[Trajectory],
    *,
    candidates: int,
    stride: int = 4,
) -> Seen:
    """Score the drafter's blocks behind every `stride`-th token of every trajectory."""
    parts = [_observe_one(target, drafter, corrector, item, candidates, stride) for item in trajectories]
    parts = [part for part in parts if part.known_MK.shape[0]]
    if not parts:
        raise ValueError("calibrate: got no answer of at least two tokens, expected some; use other prompts")
    return Seen(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _observe_one(
    target: Qwen3, drafter: DFlash, corrector: Corrector[Any], item: Trajectory, candidates: int, stride: int
) -> Seen:
    device = target.embedding.device
    token_BS = torch.tensor([item.prompt + item.response], device=device)
    position_BS = torch.arange(token_BS.shape[1], device=device)[None]
    batch = Batch(token_BS, torch.zeros_like(token_BS), position_BS, position_BS >= len(item.prompt))
    place_N = anchor_candidates(batch)[0].nonzero().squeeze(1)[::stride]
    anchors = Anchors(place_N[None], torch.ones_like(place_N[None], dtype=torch.bool))
    taught = teach(target, drafter, batch, anchors, distribution=True)
    assert taught.target_MKV is not None, "asked for"

    slots, vocab = taught.label_MK.shape[1], target.config.vocab_size
    position_MK = place_N[:, None] + 1 + torch.arange(slots, device=device)
    seed, request = (torch.tensor(value, device=device) for value in (item.seed, item.request))
    key_MK = noise_key(seed, request, position_MK)
    noise_MKV = gumbel(key_MK[..., None], torch.arange(vocab, device=device)).float() * item.temperature
    count = candidates if corrector.support is None else min(candidates, corrector.support)
    offered = select_candidates(taught.base_MKV, count, noise_BKV=noise_MKV)
    scored = score(corrector, taught, offered)
    ids_MKC = scored.prepared.candidates.ids_BKC
    noise_MKC = noise_MKV if ids_MKC is None else noise_MKV.gather(-1, ids_MKC)
    # behind a token that was not offered the head's path is another one than the text
    reached_MK = torch.cat([torch.ones_like(scored.present_MK[:, :1]), scored.present_MK[:, :-1]], dim=1)
    law_MKV = torch.log_softmax(taught.target_MKV.float() / item.temperature, dim=-1)
    return Seen(
        scores_MKC=scored.scores_MKC,
        noise_MKC=noise_MKC,
        place_MK=torch.where(scored.present_MK, scored.choice_MK, scored.scores_MKC.shape[-1]),
        target_MK=law_MKV.gather(-1, taught.label_MK[..., None]).squeeze(-1),
        known_MK=taught.trained_MK & reached_MK.cumprod(dim=1).bool(),
    )


def fit(seen: Seen, *, documents: int, temperature: float) -> Calibration:
    """All of a calibration from what was seen."""
    return Calibration(
        coupling=fit_coupling(seen),
        draft_temperature=best_draft_temperature(seen),
        acceptance=greedy_acceptance(seen),
        documents=documents,
        temperature=temperature,
    )


def fit_coupling(seen: Seen, *, steps: int = 250, rate: float = 0.05, shrink: float = 30.0) -> Coupling:
    """Maximum likelihood tables. `shrink` is how many slots a cell's own evidence has to outweigh its depth's."""
    slots, bins = seen.place_MK.shape[1], len(BORDERS) + 1
    border_E = torch.tensor(BORDERS)
    bin_MK = torch.bucketize(seen.scores_MKC.amax(dim=-1).exp(), border_E)
    depth_MK = torch.arange(slots).expand_as(bin_MK)
    rows = seen.known_MK
    scores_RC, noise_RC = seen.scores_MKC[rows], seen.noise_MKC[rows]
    place_R, cell_R = seen.place_MK[rows], (depth_MK * bins + bin_MK)[rows]
    offered_RC = scores_RC > float("-inf")

    start = torch.tensor([1.0, 0.25, -3.0])
    depth_K3 = torch.zeros(slots, 1, 3, requires_grad=True)
    own_KX3 = torch.zeros(slots, bins, 3, requires_grad=True)
    optimiser = torch.optim.Adam([depth_K3, own_KX3], lr=rate)
    with torch.enable_grad():
        for _ in range(steps):
            table = (start + depth_K3 + own_KX3).flatten(0, 1)[cell_R]
            mixed = table[:, :1] * scores_RC.masked_fill(~offered_RC, 0.0) + table[:, 1:2] * noise_RC
            logits = torch.cat([mixed.masked_fill(~offered_RC, float("-inf")), table[:, 2:]], dim=1)
            nll = torch.nn.functional.cross_entropy(logits, place_R, reduction="sum")
            loss = (nll + shrink * own_KX3.square().sum() + depth_K3.square().sum()) / len(place_R)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    table_KX3 = (start + depth_K3 + own_KX3).detach()
    return Coupling(
        border_E=border_E,
        trust_KX=table_KX3[..., 0].clamp(min=0.0).contiguous(),
        noise_KX=table_KX3[..., 1].clamp(min=0.0).contiguous(),
        other_KX=table_KX3[..., 2].contiguous(),
    )


def best_draft_temperature(seen: Seen) -> float:
    """The draft temperature with the longest expected walk under reject.

    Given the text, a slot is accepted with probability min(1, q(y) / p(y)): no decoding is needed to know it.
    """
    return max(
        DRAFT_TEMPERATURES, key=lambda value: float(_walk(_acceptance(seen, value), seen.known_MK).mean())
    )


def greedy_acceptance(seen: Seen) -> tuple[float, ...]:
    """Per depth, the share of slots that the greedy chain gets right where it was right before."""
    hit_MK = _acceptance(seen, 0.0).bool() & seen.known_MK
    reached_MK = torch.cat([torch.ones_like(hit_MK[:, :1]), hit_MK.cumprod(dim=1).bool()[:, :-1]], dim=1)
    reached_MK = reached_MK & seen.known_MK
    shares = (hit_MK & reached_MK).sum(dim=0) / reached_MK.sum(dim=0).clamp(min=1)
    return tuple(round(float(share), 4) for share in shares)


def _acceptance(seen: Seen, temperature: float) -> Tensor:
    if temperature == 0:
        return (seen.scores_MKC.argmax(dim=-1) == seen.place_MK).float()
    q_MKC = torch.log_softmax(seen.scores_MKC / temperature, dim=-1)
    inside_MK = seen.place_MK < q_MKC.shape[-1]
    q_MK = q_MKC.gather(-1, seen.place_MK.clamp(max=q_MKC.shape[-1] - 1)[..., None]).squeeze(-1)
    return torch.where(inside_MK, (q_MK - seen.target_MK).clamp(max=0).exp(), 0.0)


def _walk(acceptance_MK: Tensor, known_MK: Tensor) -> Tensor:
    return (acceptance_MK * known_MK).cumprod(dim=1).sum(dim=1)
