"""Prompt ids into the caches of one batch row, and the first token out; and what a drafter missed since, read again.

Runs in chunks: only the tapped layers' features of a chunk and the last row's logits are ever held.
"""

import torch
from torch import Tensor

from speccorrect.accept import Keys, target_draws, target_noise
from speccorrect.law import History, LawPlan, shape_logits
from specmodels.dflash import DFlash
from specmodels.kv import CacheMemory
from specmodels.qwen3 import Qwen3
from specrun.state import DecodeState

CHUNK = 256


@torch.no_grad()
def prefill(
    state: DecodeState,
    target: Qwen3,
    drafter: DFlash | None,
    row: int,
    prompt: Tensor,
    plan: LawPlan,
    *,
    kept: int = 0,
) -> tuple[int, bool]:
    """Fill row `row` from `prompt` (int64 `[T]`, at least one id) and commit the token that follows it.

    The caches hold its first `kept` ids already. Returns the token and whether it ended the request.
    """
    assert kept < prompt.shape[0], "the last id has to be read: the first token is drawn from its row"
    rows = state.row(row)
    length = prompt.shape[0]
    rows.tokens_BT[0, :length] = prompt
    rows.length_B.fill_(length)
    hidden_BD = _read(rows, target, drafter, prompt, kept)
    history = _history(rows, prompt) if plan.penalties else None
    shaped = shape_logits(target.logits(hidden_BD[:, None]), rows.law, plan, history)
    depth = torch.zeros_like(rows.length_B)[:, None]
    # the prompt's last row plays the anchor: the token drawn behind it stands at `length`
    keys = Keys(seed_B=rows.seed_B, request_B=rows.request_B, anchor_B=rows.length_B - 1)
    noise = target_noise(keys, 1, shaped.shape[-1]) if plan.noise else None
    first_B1 = target_draws(shaped, depth, rows.law.temperature_B, noise)
    rows.tokens_BT[:, length] = first_B1.squeeze(1)
    stopped = (first_B1 == rows.stop_ids_BX).any(dim=1)
    rows.remaining_B.sub_(1)
    rows.done_B.copy_(stopped | (rows.remaining_B <= 0))
    if plan.penalties:
        rows.output_BV.scatter_(1, first_B1, 1)
    return int(first_B1.item()), bool(rows.done_B.item())


@torch.no_grad()
def catch_up(state: DecodeState, target: Qwen3, drafter: DFlash, row: int, start: int, length: int) -> None:
    """Read the ids of row `row` from `start` to `length` once more: rounds that did not draft left no features of them."""
    rows = state.row(row)
    _read(rows, target, drafter, rows.tokens_BT[0, :length], start)


def _read(rows: DecodeState, target: Qwen3, drafter: DFlash | None, ids: Tensor, start: int) -> Tensor:
    """Ids behind `start` into both caches of one row; the last one's hidden row comes back."""
    taps = () if drafter is None else drafter.config.target_layers
    for first in range(start, ids.shape[0], CHUNK):
        chunk_BQ = ids[None, first : first + CHUNK]
        positions_BQ = torch.arange(first, first + chunk_BQ.shape[1], device=ids.device)[None]
        span = torch.arange(first + chunk_BQ.shape[1], device=ids.device)
        memory = CacheMemory(rows.target_kv, positions_BQ, span <= positions_BQ[..., None])
        output = target(chunk_BQ, positions_BQ, memory, taps)
        if drafter is not None and rows.draft_kv is not None:
            context = drafter.context(output.features_BQF)
            for layer, (key, value) in enumerate(drafter.context_kv(context, positions_BQ)):
                rows.draft_kv.write(layer, positions_BQ, key, value)
            rows.features_BPF[:, 0] = output.features_BQF[:, -1]
    rows.features_start_B.fill_(ids.shape[0] - 1)
    rows.features_count_B.fill_(1)
    return output.hidden_BQD[:, -1]


def _history(rows: DecodeState, prompt: Tensor) -> History:
    rows.prompt_BV.zero_()
    rows.prompt_BV[:, prompt] = True
    rows.output_BV.zero_()
    return History(prompt_BV=rows.prompt_BV, output_BNV=rows.output_BV[:, None])
