"""Milliseconds per round of every method, split by stage, against plain decoding in the same process.

`python tools/bench --shape qwen3-0.6b --repeats 7`. Weights are random: what a round costs does not depend on them, and
what it yields is measured elsewhere. The order of methods rotates from repeat to repeat, so that a slow minute of the
machine falls on all of them. One JSON object per run is written beside the table.
"""

import argparse
import json
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from shapes import BLOCK, SHAPES, random_pair

from speccorrect.registry import corrector_spec
from speccorrect.source import HeadShape
from specrun.clock import StageClock
from specrun.config import DraftOptions, Sampling
from specrun.engine import Engine
from specrun.methods import Method, method, methods
from spectrain.record import commit


def engine_of(chosen: Method, models: Any, budget: int | None) -> Engine:
    """An engine with an untrained head."""
    target, drafter = models
    if chosen.growth == "plain":
        return Engine(target, chosen)
    shape = HeadShape(
        hidden_size=drafter.config.hidden_size,
        vocab_size=target.config.vocab_size,
        block_size=BLOCK,
        shifted=False,
    )
    head = corrector_spec(chosen.corrector).new(shape).to(target.embedding.dtype)
    head.requires_grad_(requires_grad=False)
    options = DraftOptions(tree_budget=budget if chosen.growth == "tree" else None)
    return Engine(target, chosen, drafter=drafter, corrector=head, options=options)


def time_rounds(engine: Engine, prompt: list[int], rounds: int, temperature: float) -> dict[str, float]:
    """Milliseconds per round by stage, over `rounds` rounds behind the prompt."""
    clock = StageClock(engine.parts.target.embedding.device)
    sampling = Sampling(max_new_tokens=20 * rounds, temperature=temperature, stop_ids=())
    for done, _ in enumerate(engine.stream(prompt, sampling, clock=clock)):
        if done == rounds:
            break
    return {stage: 1000 * seconds / rounds for stage, seconds in clock.seconds().items()}


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Per method the median and the extremes of the repeats."""
    models = random_pair(
        options.shape, getattr(torch, options.dtype), options.context + 20 * options.rounds + 64
    )
    names = ["ar", *(name for name in options.methods if name != "ar")]
    engines = {name: engine_of(method(name), models, options.budget) for name in names}
    prompt = [token % 1000 + 1 for token in range(options.context)]
    for engine in engines.values():
        time_rounds(engine, prompt, 2, options.temperature)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for repeat in range(options.repeats):
        turn = repeat % len(names)
        for name in names[turn:] + names[:turn]:
            runs[name].append(time_rounds(engines[name], prompt, options.rounds, options.temperature))
    plain = statistics.median(sum(run.values()) for run in runs["ar"])
    report = []
    for name in names:
        totals = [sum(run.values()) for run in runs[name]]
        stages = {stage: statistics.median(run[stage] for run in runs[name]) for stage in runs[name][0]}
        report.append(
            {
                "method": name,
                "ms_per_round": round(statistics.median(totals), 3),
                "spread": [round(min(totals), 3), round(max(totals), 3)],
                "plain_steps": round(statistics.median(totals) / plain, 3),
                "stages": {stage: round(value, 3) for stage, value in stages.items()},
                "rows": engines[name].plan_for([Sampling()]).rows,
            }
        )
    return report


def table(report: list[dict[str, Any]]) -> str:
    """The report for people."""
    stages = ["draft", "correct", "grow", "verify", "accept", "commit"]
    head = ["method", "rows", "ms per round", "spread", "plain steps", *stages]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in report:
        low, high = row["spread"]
        times = [f"{row['stages'][stage]:.2f}" if stage in row["stages"] else "" for stage in stages]
        cells = [row["method"], row["rows"], f"{row['ms_per_round']:.2f}", f"{low:.2f} to {high:.2f}"]
        lines.append("| " + " | ".join(map(str, [*cells, f"{row['plain_steps']:.2f}", *times])) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--methods", nargs="+", choices=list(methods()), default=list(methods()))
    parser.add_argument("--context", type=int, default=256, help="prompt tokens")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of one measurement")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--budget", type=int, help="nodes of trees (default: each method's own)")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the run here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    report = measure(options)
    print(table(report))
    if options.json is not None:
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        machine = {
            "cpu": platform.processor() or platform.machine(),
            "torch": torch.__version__,
            "device": "cpu",
        }
        run = {"commit": commit(), "command": sys.argv[1:], **settings, **machine, "results": report}
        options.json.write_text(json.dumps(run, indent=1) + "\n")


if __name__ == "__main__":
    main()
