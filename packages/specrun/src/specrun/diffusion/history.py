"""States of an edited row in, the end of a cycle out: edits may go A to B to A for ever."""

import torch
from torch import Tensor


class History:
    """The states that a row has had, each with how well the model explains it."""

    def __init__(self) -> None:
        self._place: dict[bytes, int] = {}
        self._states: list[tuple[float, Tensor]] = []

    def note(self, ids_Q: Tensor, loss: float) -> None:
        """Remember a state and its mean negative log-probability."""
        self._place[_key(ids_Q)] = len(self._states)
        self._states.append((loss, ids_Q.clone()))

    def seen(self, ids_Q: Tensor) -> bool:
        """Whether the row has come back to a state."""
        return _key(ids_Q) in self._place

    def best_since(self, ids_Q: Tensor) -> Tensor:
        """Of the states since it was last in this one, the one that the model explains best."""
        return min(self._states[self._place[_key(ids_Q)] :], key=lambda state: state[0])[1]


def _key(ids_Q: Tensor) -> bytes:
    return ids_Q.to(torch.int64).cpu().numpy().tobytes()
