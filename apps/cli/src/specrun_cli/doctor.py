"""`specrun doctor`: what is here, what is missing, and the command that mends it; memory before it is taken.

It loads no weights and downloads nothing.
"""

import json
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from specrun import Method, method
from specrun.assemble import dtype_on, stated_by
from specrun.budget import Budget, memory_budget
from specrun.catalogue import Offer, catalogue, default_draft, downloads, offer
from specrun_cli.columns import paragraph, table
from specrun_cli.measure import run as measure
from specrun_cli.opening import DRAFTING, MODEL, device_of, refuse_denoisers

PACKAGES = ("specrun", "torch", "numpy", "safetensors", "tokenizers", "huggingface-hub", "jinja2")
SPARE = 0.9  # of the free memory: the rest goes to activations and to fragments
_INDENT = 14
_WRONG = 1  # exit code


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The device that was asked for."""

    device: str
    name: str
    memory: int  # bytes
    free: int
    hints: tuple[str, ...]  # what could be better, with the command


def run(given: Mapping[str, Any]) -> int:
    """Look, print, and say in the exit code whether the method can run; with --measure, time its rounds."""
    for name in ("context", "batch_size") if "measure" in given else ("contexts",):
        if name in given:
            other = "with" if "measure" in given else "without"
            raise ValueError(f"{name.replace('_', '-')}: has no effect {other} --measure; leave it out")
    if "measure" in given:
        measure(given)
        return 0
    model, chosen = given.get("model", MODEL), method(given.get("method", DRAFTING))
    refuse_denoisers(model)
    for name in ("context", "batch_size"):
        if given.get(name, 1) < 1:
            raise ValueError(f"{name.replace('_', ' ')}: got {given[name]}, expected at least 1")
    machine = _machine(device_of(given.get("device", "auto")))
    target, drafter = offer(model), _drafter(model, chosen, given.get("draft"))
    missing = [part for part in (target, drafter) if part is not None and part.folder is None]
    budget = None
    if not missing:
        budget = _budget(target, drafter, chosen, given, machine)
    fits = budget is None or budget.total <= SPARE * machine.free
    if "json" in given:
        print(json.dumps(_record(machine, target, drafter, budget, fits=fits)))
    else:
        _print_machine(machine)
        print(f"\nModel {model}, method {chosen.name}")
        _print_parts(target, drafter)
        if budget is not None:
            _print_budget(budget, machine, given.get("batch_size", 1), fits=fits)
    return _WRONG if missing or not fits else 0


def _budget(
    target: Offer,
    drafter: Offer | None,
    chosen: Method,
    given: Mapping[str, Any],
    machine: Machine,
) -> Budget:
    assert target.folder is not None, "looked at before"
    return memory_budget(
        target.folder,
        None if drafter is None else drafter.folder,
        chosen,
        dtype=dtype_on(machine.device, given.get("dtype")),
        context=given.get("context"),
        batch=given.get("batch_size", 1),
        stated=None if drafter is None else stated_by(drafter.source),
    )


def _drafter(model: str, chosen: Method, named: str | None) -> Offer | None:
    if chosen.growth == "plain":
        return None
    source = named or default_draft(model, chosen)
    if source is None:
        raise ValueError(f"draft: none is known for {model} and method {chosen.name}; name one with --draft")
    return offer(source)


def _machine(device: str) -> Machine:
    if device.startswith("cuda"):
        free, total = torch.cuda.mem_get_info(device)
        properties = torch.cuda.get_device_properties(device)
        name = f"{properties.name}, compute {properties.major}.{properties.minor}, CUDA {torch.version.cuda}"
        return Machine(device=device, name=name, memory=total, free=free, hints=())
    hints = []
    if shutil.which("nvidia-smi") and not torch.cuda.is_available():
        found = (
            "was built without CUDA"
            if torch.version.cuda is None
            else f"finds no device for CUDA {torch.version.cuda}"
        )
        hints.append(
            f"there is an NVIDIA driver, but torch {torch.__version__} {found}; pip install --force-reinstall torch"
        )
    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    name = f"{platform.machine()}, {cores} cores, {threads} of them for torch, {torch.backends.cpu.get_cpu_capability()}"
    total, free = _memory()
    return Machine(device="cpu", name=name, memory=total, free=free, hints=tuple(hints))


def _memory() -> tuple[int, int]:
    """All of the host's and what is available of it; where only the former is known, it stands for both."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    table_of_linux = Path("/proc/meminfo")
    if not table_of_linux.is_file():
        return total, total
    entries = dict(line.split(":", 1) for line in table_of_linux.read_text(encoding="ascii").splitlines())
    return total, int(entries["MemAvailable"].split()[0]) * 1024


def _print_machine(machine: Machine) -> None:
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    hub = downloads()
    state = "offline by HF_HUB_OFFLINE" if hub.offline else "online"
    login = "logged in" if hub.login else "not logged in, which gated models alone need: hf auth login"
    disk = shutil.disk_usage(next(path for path in (hub.cache, *hub.cache.parents) if path.exists()))
    lines = [
        ("versions", f"Python {platform.python_version()}, {versions}"),
        ("device", f"{machine.device}: {machine.name}"),
        ("memory", f"{_size(machine.free)} free of {_size(machine.memory)}"),
        ("hub", f"{state}; {login}"),
        ("downloads", f"{hub.cache}, {_size(disk.free)} free on its disk"),
        *(("better", hint) for hint in machine.hints),
    ]
    for label, text in lines:
        print(paragraph(label, text, indent=_INDENT))


def _print_parts(target: Offer, drafter: Offer | None) -> None:
    for label, part in (("target", target), ("drafter", drafter)):
        if part is None:
            print(paragraph(label, "none: this method drafts nothing", indent=_INDENT))
        elif part.folder is not None:
            print(paragraph(label, f"{part.source.partition('@')[0]}, here: {part.folder}", indent=_INDENT))
        else:
            print(
                paragraph(
                    label,
                    f"{part.source.partition('@')[0]}, MISSING{_known(part)}; get it with",
                    indent=_INDENT,
                )
            )
            print(f"{' ' * _INDENT}{_download(part)}")


def _known(part: Offer) -> str:
    """What is known of a target before it is here."""
    known = next((one for one in catalogue() if one.weights == part), None)
    if known is None:
        return ""
    gate = f", behind a licence to accept at https://huggingface.co/{part.source.partition('@')[0]}"
    return f", {known.gigabytes:.1f} GB{gate if known.gated else ''}"


def _download(part: Offer) -> str:
    repo, _, revision = part.source.partition("@")
    return f"hf download {repo}" + (f" --revision {revision}" if revision else "")


def _print_budget(budget: Budget, machine: Machine, batch: int, *, fits: bool) -> None:
    print(f"\nMemory for {batch} at a time, {budget.context} tokens of prompt and answer each")
    rows = [
        ("  target", _size(budget.target), "weights"),
        ("  drafter", _size(budget.drafter), "weights, its head included"),
        ("  state", _size(budget.state), "caches of both"),
        ("  round", _size(budget.round), "scores over the vocabulary, for a moment"),
        ("  together", _size(budget.total), f"of {_size(machine.free)} free on {machine.device}"),
    ]
    print(table(("  PART", "SIZE", ""), rows))
    if not fits:
        advice = "TOO MUCH: take --dtype bfloat16, a smaller --context or --batch-size, or a smaller model"
        print(paragraph("", advice, indent=0))


def _record(
    machine: Machine, target: Offer, drafter: Offer | None, budget: Budget | None, *, fits: bool
) -> dict[str, Any]:
    parts = {name: part for name, part in (("target", target), ("drafter", drafter)) if part is not None}
    return {
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "machine": asdict(machine),
        "hub": {
            name: str(value) if name == "cache" else value for name, value in asdict(downloads()).items()
        },
        "parts": {
            name: {
                "source": part.source,
                "folder": None if part.folder is None else str(part.folder),
                "command": _download(part) if part.folder is None else None,
            }
            for name, part in parts.items()
        },
        "bytes": None if budget is None else asdict(budget) | {"total": budget.total},
        "fits": fits,
    }


def _size(number: int) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e8 else f"{number / 1e6:.1f} MB"
