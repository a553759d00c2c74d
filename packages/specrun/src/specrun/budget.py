"""Model folders in, the memory that decoding with them takes out, before a single weight is loaded."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specmodels.checkpoint import TensorFolder, drafter_form, target_form
from specrun.config import DraftOptions, Sampling
from specrun.methods import Method
from specrun.plan import round_plan
from specrun.state import DecodeState, allocate, law_plan

USUAL = 4096
"""Tokens of prompt and answer together where nobody says how many."""

_SINGLE, _DOUBLE = 4, 8  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bytes by what they are for."""

    context: int  # tokens that a prompt and its answer may have together
    target: int  # weights
    drafter: int  # weights, its head included
    state: int  # caches and everything else that is allocated once
    round: int  # about what one round adds for a moment: scores over the vocabulary

    @property
    def total(self) -> int:
        return self.target + self.drafter + self.state + self.round


def memory_budget(
    target: Path,
    drafter: Path | None,
    method: Method,
    *,
    dtype: torch.dtype | None,
    context: int | None,
    batch: int,
    stated: Mapping[str, Any] | None = None,
) -> Budget:
    """What sampling `batch` requests of up to `context` tokens at once takes.

    None takes `USUAL` tokens or what the models allow, and the target's own dtype.
    """
    model = target_form(target, dtype=dtype)
    size = model.embedding.dtype.itemsize
    draft = None
    if drafter is not None:
        draft = drafter_form(drafter, model.config, dtype=model.embedding.dtype, stated=stated)
    limit = min(part.config.max_positions for part in (model, draft) if part is not None)
    if context is not None and context > limit:
        raise ValueError(
            f"context: got {context} tokens, expected at most {limit}, which is all that the models take"
        )
    context = min(USUAL, limit) if context is None else context
    law = law_plan([Sampling(temperature=1.0)])
    plan = round_plan(method, DraftOptions(), law, None if draft is None else draft.config, None)
    state = allocate(model, draft, batch=batch, capacity=context, path=plan.path, penalties=False)
    # the drafter's scores and the target's, each once raw and once shaped, and the noise of every depth
    scores = 2 * (plan.slots + plan.rows) * _SINGLE + plan.path * _DOUBLE
    return Budget(
        context=context,
        target=sum(weight.numel() for weight in model.parameters()) * size,
        drafter=0 if drafter is None else TensorFolder(drafter).numbers * size,
        state=sum(tensor.numel() * tensor.element_size() for tensor in _buffers(state)),
        round=batch * model.config.vocab_size * scores,
    )


def _buffers(state: DecodeState) -> list[Tensor]:
    caches = [cache for cache in (state.target_kv, state.draft_kv) if cache is not None]
    found = [getattr(state, item.name) for item in fields(state)]
    held = [value for value in found if isinstance(value, Tensor)]
    return [*held, *(part for cache in caches for part in (cache.key_LBGTH, cache.value_LBGTH))]
