"""Names of finished stages in, seconds per stage out: the clock that `Engine.stream` takes."""

import time

import torch


class StageClock:
    """Sums what each stage takes over all rounds; the host's work between two rounds is nobody's.

    On CUDA it records events and reads them one round later, when they lie in the past: nothing waits for it. A stage
    is then charged with what the device did for it, and with the device's wait for the host to launch that.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._marks: list[tuple[str, float | torch.cuda.Event]] = []
        self._seconds: dict[str, float] = {}

    def __call__(self, stage: str) -> None:
        """Note that `stage` has ended; `start` opens a round."""
        if stage == "start":
            self._settle()
        self._marks.append((stage, self._now()))

    def seconds(self) -> dict[str, float]:
        """Seconds by stage, in the order of the stages."""
        self._settle()
        return dict(self._seconds)

    def _now(self) -> float | torch.cuda.Event:
        if not self._on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _settle(self) -> None:
        for (_, before), (stage, after) in zip(self._marks, self._marks[1:], strict=False):
            self._seconds[stage] = self._seconds.get(stage, 0.0) + _between(before, after)
        self._marks.clear()


def _between(before: float | torch.cuda.Event, after: float | torch.cuda.Event) -> float:
    if isinstance(before, float) and isinstance(after, float):
        return after - before
    assert isinstance(before, torch.cuda.Event), f"got a {type(before).__name__} before an event"
    assert isinstance(after, torch.cuda.Event), f"got a {type(after).__name__} after an event"
    after.synchronize()
    return before.elapsed_time(after) / 1000
