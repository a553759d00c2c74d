"""A prompt and the room for its answer as one row of tokens, masked where nothing is decided.

Letters: T positions of the row.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True, kw_only=True)
class Canvas:
    """The row that decoding and refinement write; nothing before `prompt` ever changes."""

    ids_T: Tensor  # int64
    sure_T: Tensor  # fp32: how probable each token was when it was written
    prompt: int  # tokens of the prompt
    budget: int  # tokens of the answer at most; the row may be longer, up to the end of its last block
    block: int
    mask_id: int
    end_ids: tuple[int, ...]  # any of them ends an answer

    def masked(self, start: int, stop: int) -> Tensor:
        """Where the answer still is to be found; a mask inside the prompt is the user's own."""
        masked = self.ids_T[start:stop] == self.mask_id
        masked[: max(0, self.prompt - start)] = False
        return masked

    def free(self, start: int, stop: int) -> Tensor:
        """Positions of the answer."""
        return torch.arange(start, stop, device=self.ids_T.device) >= self.prompt

    def answer(self) -> list[int]:
        """The answer so far: up to its first mask, its first end, which is included, or its budget."""
        ids = self.ids_T[self.prompt : self.prompt + self.budget].tolist()
        for place, token in enumerate(ids):
            if token == self.mask_id:
                return ids[:place]
            if token in self.end_ids:
                return ids[: place + 1]
        return ids

    def ended(self) -> bool:
        """Whether nothing more has to be decoded."""
        answer = self.answer()
        return len(answer) == self.budget or (bool(answer) and answer[-1] in self.end_ids)


def new_canvas(
    prompt: list[int],
    budget: int,
    *,
    block: int,
    longest: int,
    mask_id: int,
    end_ids: tuple[int, ...],
    device: torch.device,
) -> Canvas:
    """A row of whole blocks, the last one cut where the model's context of `longest` positions ends."""
    length = min(-(-(len(prompt) + budget) // block) * block, longest)
    ids_T = torch.full((length,), mask_id, dtype=torch.int64, device=device)
    ids_T[: len(prompt)] = torch.tensor(prompt, dtype=torch.int64)
    return Canvas(
        ids_T=ids_T,
        sure_T=torch.zeros(length, device=device),
        prompt=len(prompt),
        budget=budget,
        block=block,
        mask_id=mask_id,
        end_ids=end_ids,
    )
