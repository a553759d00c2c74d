"""Prompts of many clients in, pieces of their answers out: a bounded queue, and one thread that owns the engine.

Whoever waits when the engine is free is decoded together, a batch row each, and every answer ends by itself. It knows
neither HTTP nor JSON.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specrun import Engine, Piece, Sampling

LOG = logging.getLogger("specrun.server")


class BusyError(Exception):
    """The queue is full."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One answer that somebody waits for."""

    prompt: list[int]
    sampling: Sampling
    number: int  # stream of noise under the seed
    put: Callable[[Piece | Exception], None]  # takes the pieces, on the worker's thread
    dropped: bool = False  # nobody waits any more


class Worker:
    """Runs jobs on one engine until it is closed."""

    def __init__(self, engine: Engine, *, rows: int, most_waiting: int) -> None:
        self._engine, self._rows, self._most_waiting = engine, rows, most_waiting
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Jobs that no row has taken yet."""
        return len(self._waiting)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue all of the jobs, or raise BusyError and queue none."""
        with self._changed:
            if len(self._waiting) + len(jobs) > self._most_waiting:
                raise BusyError
            self._waiting.extend(jobs)
            self._changed.notify()

    def close(self) -> None:
        """Let the running answers go and stop; returns when the thread has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                taken = [self._waiting.popleft() for _ in range(min(self._rows, len(self._waiting)))]
            group = [job for job in taken if not job.dropped]
            if group:
                self._decode(group)

    def _decode(self, group: list[Job]) -> None:
        try:
            pieces = self._engine.stream_batch(
                [job.prompt for job in group],
                [job.sampling for job in group],
                numbers=[job.number for job in group],
                dropped=lambda place: group[place].dropped or self._closed,
            )
            for piece in pieces:
                group[piece.index].put(piece)
        except Exception as error:
            # one group is lost; those behind it must not wait for ever
            LOG.exception("a group of %d answers failed", len(group))
            for job in group:
                job.put(error)
