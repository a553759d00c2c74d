"""`specrun bench`: what every method gains over plain decoding in the same process; a table, a record and a picture."""

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from specrun import DraftOptions, Engine, Sampling, method, methods
from specrun.embedded import embedded_models
from specrun.shapes import SHAPES, random_engine, random_pair
from specrun_cli.bench_runs import as_records, measure
from specrun_cli.columns import table
from specrun_cli.opening import MODEL, announce, enough_memory, open_engine, prompt_ids
from specrun_cli.prompt import read_prompts
from spectiny import DOMAINS, prompts
from spectrain.record import commit

QUICK = {
    "methods": ["ar", "dflash", "domino", "ddtree", "dominotree", "dflash2tree"],
    "count": 2,
    "max_new_tokens": 48,
    "repeats": 3,
}
COUNT, TOKENS, REPEATS, CONTEXT = 8, 96, 7, 256
DRAFTING = ("block_size", "tree_budget", "accept", "draft_temperature", "couple", "policy")


def run(given: Mapping[str, Any]) -> None:
    """Measure, print, and write what was asked for."""
    if given.get("quick"):
        given = {**QUICK, **given}
    _refuse(given)
    if "threads" in given:
        torch.set_num_threads(given["threads"])
    with enough_memory():
        record = _measured(given)
    print(_shown(record))
    folder = Path(given["output"]) if "output" in given else None
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if find_spec("matplotlib") is None:
        print("specrun: no picture without matplotlib; pip install specrun-cli[plots]", file=sys.stderr)
        return
    from specrun_cli.bench_plot import plot

    plot(record, folder / "bench.png")


def _refuse(given: Mapping[str, Any]) -> None:
    """Options that cannot work, or have no effect beside the others."""
    for name in ("count", "repeats", "threads", "max_new_tokens", "context"):
        if given.get(name, 1) < 1:
            raise ValueError(f"{name.replace('_', ' ')}: got {given[name]}, expected at least 1")
    for size in given.get("batch_sizes", []):
        if size < 1:
            raise ValueError(f"batch sizes: got {size}, expected at least 1")
    if "random_weights" in given:
        for name in ("model", "draft", "prompts", "count", "offline"):
            if name in given and not (given.get("quick") and name == "count"):
                raise ValueError(f"{name}: has no effect with --random-weights; leave one of them out")
        if given["random_weights"] not in SHAPES:
            raise ValueError(
                f"random weights: got {given['random_weights']!r}, expected one of {', '.join(SHAPES)}"
            )
    else:
        for name in ("simulate_acceptance", "context"):
            if name in given:
                raise ValueError(
                    f"{name.replace('_', ' ')}: has no effect with real weights; set --random-weights or leave it out"
                )
    if given.get("simulate_acceptance", 1) < 1:
        raise ValueError(
            f"simulate acceptance: got {given['simulate_acceptance']}, expected at least 1 token per round"
        )


def _measured(given: Mapping[str, Any]) -> dict[str, Any]:
    temperatures = given.get("temperatures", [0.0])
    base = Sampling(max_new_tokens=given.get("max_new_tokens", TOKENS), seed=given.get("seed", 0))
    engines, ids = _random(given, base) if "random_weights" in given else _real(given, base)
    if "random_weights" in given:
        base = Sampling(max_new_tokens=base.max_new_tokens, seed=base.seed, stop_ids=())
    batch_sizes, repeats = given.get("batch_sizes", [1]), given.get("repeats", REPEATS)
    total = len(engines) * len(temperatures) * len(batch_sizes) * (repeats + 1)
    with tqdm(total=total, unit="run", disable=not sys.stderr.isatty(), leave=False) as bar:
        cells = measure(
            engines,
            ids,
            base,
            temperatures=temperatures,
            batch_sizes=batch_sizes,
            repeats=repeats,
            progress=bar.update,
        )
    embedding = next(iter(engines.values())).parts.target.embedding
    return {
        "commit": commit(),
        "command": sys.argv[1:],
        "versions": {"python": platform.python_version(), "torch": torch.__version__}
        | {"specrun": version("specrun")},
        "device": torch.cuda.get_device_name(embedding.device) if embedding.is_cuda else _processor(),
        "threads": torch.get_num_threads(),
        "dtype": str(embedding.dtype).removeprefix("torch."),
        "model": given.get("random_weights", given.get("model", MODEL)),
        "random_weights": "random_weights" in given,
        "simulated_tokens_per_round": given.get("simulate_acceptance"),
        "compiled": "compile" in given,
        "prompts": len(ids),
        "max_new_tokens": base.max_new_tokens,
        "repeats": repeats,
        "cells": as_records(cells, given.get("simulate_acceptance")),
    }


def _real(given: Mapping[str, Any], base: Sampling) -> tuple[dict[str, Engine], list[list[int]]]:
    """Engines of all methods over one target, and the prompts of the embedded family or of a file."""
    known = embedded_models().get(given.get("model", MODEL))
    names = [
        name
        for name, item in methods().items()
        if known is None or item.corrector is None or item.corrector in known.drafters
    ]
    engines: dict[str, Engine] = {}
    for name in _chosen(given, names):
        growth = method(name).growth
        own = {
            key: value
            for key, value in given.items()
            if key not in (*DRAFTING, "draft") or _fits(key, growth)
        }
        engines[name] = open_engine({**own, "method": name}, base, beside=engines.get("ar"))
    announce(given.get("model", MODEL))
    count = given.get("count", COUNT)
    texts: list[str] = []
    for source in given.get("prompts", ["math", "code"]):
        if source in DOMAINS:
            texts += [document.prompt for document in prompts(source)[:count]]
        else:
            texts += read_prompts(Path(source))[:count]
    return engines, [prompt_ids(engines["ar"], text, {}) for text in texts]


def _random(given: Mapping[str, Any], base: Sampling) -> tuple[dict[str, Engine], list[list[int]]]:
    """Engines over random weights of a public shape, and one prompt of any ids."""
    context = given.get("context", CONTEXT)
    dtype = getattr(torch, given.get("dtype", "float32"))
    target, drafter = random_pair(given["random_weights"], dtype, context + base.max_new_tokens + 512)
    device = given.get("device", "cpu")
    models = target.to(device), drafter.to(device)
    engines = {}
    for name in _chosen(given, list(methods())):
        growth = method(name).growth
        options = DraftOptions(**{key: given[key] for key in DRAFTING if key in given and _fits(key, growth)})
        engines[name] = random_engine(method(name), models, options=options)
        if "compile" in given:
            engines[name].compile()
    return engines, [[1 + index % 1000 for index in range(context)]]


def _chosen(given: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    """Plain decoding first: everything is measured against it."""
    return ["ar", *(name for name in given.get("methods", known) if name != "ar")]


def _fits(option: str, growth: str) -> bool:
    """Whether a drafting option has an effect with a growth: one command measures all of them."""
    only = {"tree_budget": "tree", "couple": "tree", "accept": "chain", "draft_temperature": "chain"}
    return growth != "plain" and only.get(option, growth) == growth


def _shown(record: Mapping[str, Any]) -> str:
    """One table per temperature and batch size."""
    weights = "random weights, " if record["random_weights"] else ""
    head = (
        f"{record['model']}, {weights}{record['dtype']}, {record['threads']} threads, {record['device']};"
        f" medians of {record['repeats']}, {record['prompts']} prompts"
    )
    simulated = record["simulated_tokens_per_round"]
    lines = [head]
    if simulated is not None:
        lines.append(f"SIMULATED: {simulated:g} tokens per round assumed; nothing was accepted here")
    groups: dict[tuple[float, int], list[Mapping[str, Any]]] = {}
    for cell in record["cells"]:
        groups.setdefault((cell["temperature"], cell["batch_size"]), []).append(cell)
    for (temperature, batch_size), cells in groups.items():
        rows = []
        for cell in cells:
            low, high = cell["tokens_per_second_spread"]
            rows.append(
                [
                    cell["method"],
                    f"{cell['faster']:.2f}x",
                    f"{cell['tokens_per_second']:.0f}",
                    f"{low:.0f}-{high:.0f}",
                    f"{cell['tokens_per_round']:.2f}",
                    f"{cell['ms_per_round']:.2f}",
                    f"{cell['plain_steps']:.2f}",
                    str(cell["rows"]),
                ]
            )
        columns = ["METHOD", "SPEED", "TOKENS/S", "SPREAD", "PER ROUND", "MS/ROUND", "PLAIN STEPS", "ROWS"]
        lines += ["", f"temperature {temperature:g}, batch size {batch_size}", table(columns, rows, gap=1)]
    lines += [
        "",
        "SPEED: tokens per second over those of ar. PER ROUND: tokens that a round",
        "yields. PLAIN STEPS: a round's time in rounds of ar. ROWS: verified per round.",
    ]
    return "\n".join(lines)


def _processor() -> str:
    """The processor's own name where the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
