"""Damage the files of a model at random and load them: whatever they hold, the answer is a model or one ValueError.

Run from the root of the repository: `python tools/fuzz --seconds 600 --record tools/fuzz/results/NAME.json`. A case is a
number: `--case N` runs that one alone and shows its traceback. Crashes of the process, other exceptions, answers that take
more than five seconds, and ones that need gigabytes are failures; the exit code says whether there were any. POSIX only.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import NoReturn

import torch
from cases import damage, write_models

from specmodels.template import read_chat_template, read_stop_ids
from specrun import load_engine

LIMIT = 10.0  # seconds of the processor for one case
MEMORY = 3 * 2**30  # bytes beyond what the process held before
BATCH = 250  # cases of one process


class TooSlowError(BaseException):
    """Raised from the timer; nothing that catches exceptions catches it."""


def main() -> None:
    """Fuzz; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run this one alone")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, check=True, text=True)
    commit = head.stdout.strip()
    with tempfile.TemporaryDirectory() as name:
        models = Path(name, "models")
        methods = write_models(models)
        if options.case is not None:
            print(answer(options.case, models, methods, Path(name), show=True))
            return
        found, cases, seconds = run(options, models, methods, Path(name))
    record = {
        "command": f"python tools/fuzz --seconds {options.seconds:g} --first {options.first}",
        "commit": commit,
        "torch": torch.__version__,
        "first": options.first,
        "cases": cases,
        "seconds": round(seconds),
        "answers": dict(sorted(found.items())),
        "failures": sorted(kind for kind in found if kind.startswith("failed")),
    }
    print(json.dumps(record, indent=2))
    if options.record is not None:
        options.record.parent.mkdir(parents=True, exist_ok=True)
        options.record.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    sys.exit(bool(record["failures"]))


def run(
    options: argparse.Namespace, models: Path, methods: list[str], scratch: Path
) -> tuple[Counter[str], int, float]:
    """Batches of cases, each in a child that may die."""
    found: Counter[str] = Counter()
    number, started = options.first, time.monotonic()
    log = scratch / "log"
    while time.monotonic() - started < options.seconds:
        log.write_text("")
        child = os.fork()
        if child == 0:
            batch(number, models, methods, scratch, log)
        _, status = os.waitpid(child, 0)
        lines = log.read_text().splitlines()
        found.update(json.loads(line)["answer"] for line in lines)
        if status:
            number += len(lines)
            found[f"failed: case {number} ended the process with status {status}"] += 1
            number += 1
        else:
            number += BATCH
    return found, number - options.first, time.monotonic() - started


def batch(first: int, models: Path, methods: list[str], scratch: Path, log: Path) -> NoReturn:
    """Some cases in a process of their own, one line each."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, resource.RLIM_INFINITY))
    try:
        with log.open("a") as stream:
            for number in range(first, first + BATCH):
                found = answer(number, models, methods, scratch, show=False)
                stream.write(json.dumps({"answer": found}) + "\n")
                stream.flush()
        os._exit(0)
    finally:
        os._exit(1)  # past the parent's own clearing up


def answer(number: int, models: Path, methods: list[str], scratch: Path, *, show: bool) -> str:
    """What loading one damaged family gives."""
    rng = random.Random(number)
    folder = scratch / "case"
    shutil.rmtree(folder, ignore_errors=True)
    method = rng.choice(methods)
    for name in ("target", method):
        shutil.copytree(models / name, folder / name)
    kind = damage(folder, method, rng)
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        engine = load_engine(folder / "target", method, draft=folder / method)
        read_stop_ids(folder / "target")
        read_chat_template(folder / "target").render(
            [{"role": "user", "content": "Hello"}], enable_thinking=False
        )
        del engine
    except ValueError as error:
        if show:
            print(error)
        if "\n" in str(error).strip():
            return f"failed: case {number}: an error of several lines"
        return f"{kind}: refused"
    except BaseException as error:  # noqa: BLE001 - panics of libraries are what is looked for too
        if show:
            traceback.print_exc()
        return f"failed: case {number} ({kind}): {type(error).__name__}: {str(error)[:160]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return f"{kind}: loaded"


def _too_slow(_: int, __: FrameType | None) -> NoReturn:
    raise TooSlowError(f"more than {LIMIT} seconds")


if __name__ == "__main__":
    main()
