"""Two answers to one prompt in, where they part out; and how far rounding alone moves the scores that decide.

Passes over one row and over many add up in another order, so a token that wins by less than that may lose elsewhere.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from speccorrect.accept import Keys, target_noise
from specmodels.kv import RowsMemory
from specrun.config import Sampling
from specrun.engine import Engine

CELLS = 16
"""Of the chi-square test; it needs some five numbers in each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The first token that is another one than in plain decoding."""

    place: int  # its index in the answer
    expected: int | None  # None where plain decoding had ended
    got: int | None  # None where the other answer had ended
    margin: float  # by how much plain decoding preferred its own, noise included; infinite where an answer had ended


def parting(
    plain: Engine,
    prompt: Sequence[int],
    expected: list[int],
    got: list[int],
    sampling: Sampling,
    *,
    number: int = 0,
) -> Parting | None:
    """Where `got` leaves what `plain` gave for the same prompt as request `number`; None where they are equal."""
    if got == expected:
        return None
    shorter = min(len(got), len(expected))
    place = next((at for at in range(shorter) if got[at] != expected[at]), shorter)
    ours, theirs = ((ids[place] if place < len(ids) else None) for ids in (expected, got))
    margin = math.inf
    if ours is not None and theirs is not None and place > 0:
        score_V = _scores(plain, prompt, place, sampling, number)
        margin = float(score_V[ours] - score_V[theirs])
    return Parting(place=place, expected=ours, got=theirs, margin=margin)


def rounding(plain: Engine, prompt: Sequence[int], *, tokens: int) -> float:
    """The most by which logits of one greedy answer differ between passes over one row and one pass over all rows."""
    rows: list[Tensor] = []
    sampling = Sampling(max_new_tokens=tokens, stop_ids=())
    ids = list(prompt)
    for piece in plain.stream(prompt, sampling, watch=lambda one: rows.append(one.shaped_BNV[0, 0])):
        ids += piece.token_ids
    (logits_QV,) = _logits(plain, [ids[:-1]], last=len(rows))
    return float((torch.stack(rows) - logits_QV).abs().max())


@torch.no_grad()
def places_in_law(
    plain: Engine, prompt: Sequence[int], answers: Sequence[Sequence[int]], temperature: float
) -> Tensor:
    """Where each token of the answers stands in the law behind its own beginning, from the most probable token on.

    Uniform between 0 and 1, and independent, if and only if the tokens follow the unfiltered law. All answers are of one
    length.
    """
    drawn_BQ = torch.tensor(answers, device=plain.parts.target.embedding.device)
    rows = [[*prompt, *answer[:-1]] for answer in answers]
    law_BQV = torch.softmax(_logits(plain, rows, last=drawn_BQ.shape[1]).double() / temperature, dim=-1)
    own_BQ1 = law_BQV.gather(-1, drawn_BQ[..., None])
    above_BQ = law_BQV.masked_fill(law_BQV <= own_BQ1, 0.0).sum(dim=-1)
    alike_BQ = law_BQV.masked_fill(law_BQV != own_BQ1, 0.0).sum(dim=-1)
    # anywhere in the mass that the token shares with its equals
    share_BQ = torch.rand(above_BQ.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return (above_BQ + share_BQ.to(above_BQ.device) * alike_BQ).flatten().cpu()


def uniform_p_value(places_N: Tensor) -> float:
    """How probable it is that uniform numbers fall at least as unevenly (Pearson's chi-square over `CELLS` cells)."""
    count_X = torch.bincount((places_N * CELLS).long().clamp(max=CELLS - 1), minlength=CELLS).double()
    expected = len(places_N) / CELLS
    distance = ((count_X - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((CELLS - 1) / 2, dtype=torch.float64), distance / 2))


def _scores(plain: Engine, prompt: Sequence[int], place: int, sampling: Sampling, number: int) -> Tensor:
    """What the token at `place` of plain decoding's answer was chosen by."""
    rounds: list[Tensor] = []
    short = replace(sampling, max_new_tokens=place + 1)
    seen = plain.stream(prompt, short, number=number, watch=lambda one: rounds.append(one.shaped_BNV[0, 0]))
    deque(seen, maxlen=0)
    score_V = rounds[place - 1].double()
    if sampling.temperature > 0:
        seed, request, anchor = (
            torch.tensor([value], device=score_V.device)
            for value in (sampling.seed, number, len(prompt) + place - 1)
        )
        keys = Keys(seed_B=seed, request_B=request, anchor_B=anchor)
        score_V += sampling.temperature * target_noise(keys, 1, score_V.shape[0])[0, 0]
    return score_V


@torch.no_grad()
def _logits(plain: Engine, rows: Sequence[Sequence[int]], *, last: int) -> Tensor:
    """Of the last ids of every row, by one pass over all of them."""
    target = plain.parts.target
    ids_BQ = torch.tensor(rows, device=target.embedding.device)
    positions_BQ = torch.arange(ids_BQ.shape[1], device=ids_BQ.device).expand_as(ids_BQ)
    return target.logits(target(ids_BQ, positions_BQ, RowsMemory()).hidden_BQD[:, -last:])
