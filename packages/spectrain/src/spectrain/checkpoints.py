"""The state of a run goes in, one file comes out, whole or not at all; and back again."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor


class RunState(NamedTuple):
    """All that a run needs to go on. Random draws are made from the seed and the step, so they have no state."""

    step: int  # optimiser steps done
    seed: int
    parameters: dict[str, Tensor]
    optimiser: list[dict[str, Any]]
    average: dict[str, Tensor]  # moving average of the parameters; empty without one


def save_atomic(path: Path, content: object) -> None:
    """Write a file that appears under its name only once it is complete and on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except RuntimeError as error:
        # on a full disk torch's writer trips over itself on its way out, and hides what happened
        cause = error.__context__
        if isinstance(cause, OSError):
            raise OSError(cause.errno, cause.strerror, str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def save_run(path: Path, state: RunState) -> None:
    """Save a run; an older file of that name survives a failure."""
    save_atomic(path, state._asdict())


def load_run(path: Path) -> RunState:
    """Load a run that `save_run` saved."""
    return RunState(**torch.load(path, map_location="cpu", weights_only=True))
