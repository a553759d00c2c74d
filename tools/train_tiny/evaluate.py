"""Decode held-out prompts with several methods and tell how many tokens a round of each yields.

Run from the root of the repository: `python tools/train_tiny/evaluate.py dflash domino dominotree`. It needs specrun and
spectiny. JSON comes out, which tools/tables.py makes the pages' tables of; the change against the baseline is paired over
prompts, and intervals are those of a bootstrap over prompts. Without methods, greedy answers are shown instead.

A rule may stand behind a method: `dflash:reject@0.5` accepts by rejection and drafts at temperature 0.5,
`ddtree:couple@0.25` trusts the target's noise with that strength (0 not at all), `ddtree:couple@fit` as calibrated. Without a
rule chains accept by match, and trees couple by the strength that is the default without a calibration.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from family import DATA, TARGET_FOLDER

from specrun.assemble import load_engine
from specrun.calibration import FILE
from specrun.config import DraftOptions, Sampling
from specrun.engine import Engine
from specrun.methods import methods
from specrun.plan import DEFAULT_COUPLE
from specrun.tokens import Tokenizer
from spectiny.corpus.tokens import encode, load_tokenizer
from spectiny.document import DOMAINS
from spectiny.heldout import prompts
from spectrain.record import commit

RESAMPLES = 2_000

Counts = npt.NDArray[np.int64]  # tokens, rounds and verified rows of every prompt, [prompts, 3]


def prompt_ids(tokenizer_folder: Path, domain: str, count: int) -> list[list[int]]:
    """Ids of a domain's first prompts, as they were trained on."""
    found = encode(load_tokenizer(tokenizer_folder), prompts(domain)[:count])
    return [one.ids[: one.prompt_length] for one in found]


def load(options: argparse.Namespace, entry: str) -> Engine:
    """The engine of `method` or `method:rule`, with the drafter folder of its corrector."""
    name, _, rule = entry.partition(":")
    kind, _, value = rule.partition("@")
    method = methods()[name]
    own = "dflash" if method.corrector == "none" else method.corrector
    draft = None if method.growth == "plain" else options.drafters / f"qwen3-tiny-{own}"
    settings = DraftOptions(tree_budget=options.budget if method.growth == "tree" else None)
    if kind == "reject":
        settings = replace(settings, accept="reject", draft_temperature=float(value))
    elif kind == "couple" and value != "fit":
        settings = replace(settings, couple=float(value))
    elif kind == "couple":
        assert draft is not None, entry
        assert (draft / FILE).is_file(), f"{draft} has no calibration; run specrun calibrate first"
    elif method.growth == "tree":
        settings = replace(settings, couple=DEFAULT_COUPLE)
    return load_engine(options.target, name, draft=draft, options=settings)


def count(engine: Engine, ids: list[list[int]], temperature: float, options: argparse.Namespace) -> Counts:
    """Decode all prompts; short ones first, so that rows of a batch need about the same memory."""
    order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
    sampling = Sampling(max_new_tokens=options.tokens, temperature=temperature, seed=options.seed)
    answers = engine.generate_batch([ids[place] for place in order], sampling, batch_size=options.batch)
    counts = np.zeros((len(ids), 3), dtype=np.int64)
    for place, answer in zip(order, answers, strict=True):
        counts[place] = answer.stats.round_tokens, answer.stats.rounds, answer.stats.verified_rows
    return counts


def per_round(counts: Counts) -> float:
    """Tokens over rounds, all prompts together."""
    return float(counts[:, 0].sum() / max(1, counts[:, 1].sum()))


def interval(counts: Counts, baseline: Counts | None) -> tuple[float, float]:
    """95 % of the bootstrap over prompts: of the tokens per round, or of their change in percent against a baseline."""
    generator = np.random.default_rng(0)
    chosen = generator.integers(0, len(counts), (RESAMPLES, len(counts)))
    value = counts[chosen, 0].sum(axis=1) / counts[chosen, 1].sum(axis=1)
    if baseline is not None:
        value = 100 * (value / (baseline[chosen, 0].sum(axis=1) / baseline[chosen, 1].sum(axis=1)) - 1)
    low, high = np.quantile(value, [0.025, 0.975])
    return round(float(low), 3), round(float(high), 3)


def cell(counts: Counts, baseline: Counts | None) -> dict[str, Any]:
    """One entry of the report."""
    found: dict[str, Any] = {
        "tokens_per_round": round(per_round(counts), 4),
        "interval": interval(counts, None),
        "prompts": len(counts),
        "rounds": int(counts[:, 1].sum()),
        "tokens": int(counts[:, 0].sum()),
        "rows_per_token": round(float(counts[:, 2].sum() / max(1, counts[:, 0].sum())), 3),
    }
    if baseline is not None:
        found["change_percent"] = round(100 * (per_round(counts) / per_round(baseline) - 1), 2)
        found["change_interval"] = interval(counts, baseline)
    return found


def evaluate(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All cells, the baseline first, so that changes can be told."""
    names = [options.baseline, *(name for name in options.methods if name != options.baseline)]
    ids = {domain: prompt_ids(options.target, domain, options.prompts) for domain in options.domains}
    baselines: dict[tuple[float, str], Counts] = {}
    report = []
    for name in names:
        engine = load(options, name)
        for heat in options.temperatures:
            if heat == 0 and ":" in name:
                continue  # rules differ where something is drawn
            parts: dict[str, Counts] = {}
            for domain in options.domains:
                started = time.perf_counter()
                parts[domain] = count(engine, ids[domain], heat, options)
                seconds = time.perf_counter() - started
                print(
                    f"{name} T={heat:g} {domain}: {per_round(parts[domain]):.3f}, {seconds:.0f} s", flush=True
                )
            parts["all"] = np.concatenate(list(parts.values()))
            for domain, counts in parts.items():
                baseline = baselines.setdefault((heat, domain), counts)
                entry = {"method": name, "temperature": heat, "domain": domain}
                report.append(entry | cell(counts, None if name == options.baseline else baseline))
    return report


def show(options: argparse.Namespace) -> None:
    """Greedy answers of the target, a few per domain."""
    engine = load_engine(options.target, "ar")
    tokenizer = Tokenizer(options.target)
    for domain in options.domains:
        ids = prompt_ids(options.target, domain, options.samples)
        answers = engine.generate_batch(ids, Sampling(max_new_tokens=options.tokens))
        for prompt, answer in zip(ids, answers, strict=True):
            print(f"--- {domain}\n{tokenizer.decode(prompt)}\n>>>\n{answer.text}\n")


def main() -> None:
    """Evaluate; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", help="none: show greedy answers")
    parser.add_argument("--baseline", default="dflash", help="what the others are compared with")
    parser.add_argument("--domains", nargs="+", default=list(DOMAINS), choices=DOMAINS)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--budget", type=int, help="drafted nodes of trees; each method's own unless given")
    parser.add_argument("--prompts", type=int, default=80, help="of every domain")
    parser.add_argument("--tokens", type=int, default=96, help="new tokens at most")
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=2, help="greedy answers of a domain")
    parser.add_argument("--target", type=Path, default=TARGET_FOLDER)
    parser.add_argument("--drafters", type=Path, default=DATA, help="folder that holds the drafters' folders")
    parser.add_argument("--out", type=Path, help="name of the JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.methods:
        show(options)
        return
    report = evaluate(options)
    if options.out is not None:
        settings = {key: str(value) for key, value in vars(options).items()}
        content = {"commit": commit(), "settings": settings, "cells": report}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
