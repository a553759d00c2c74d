"""Length policies on the embedded family: tokens per round, rows verified per token and tokens per second, by domain.

`python tools/bench/lengths.py --json FILE --plot FILE`. Held-out prompts, greedy, one request at a time. Policies take
turns within every repeat, so that a slow moment of the machine falls on all of them; medians over the repeats are
reported. Seconds are those that the processor spent on decoding behind the first token, with one thread: on a machine
that does other work at the same time, a clock on the wall would measure that work. Beside the policies stand plain
decoding, `auto`, and `auto` with a drafter of random weights. At the end: how far predicted acceptance is from what
happened, by depth, before and after calibration from running statistics.
"""

import argparse
import hashlib
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

import spectiny
from speccorrect.confidence import calibration_error
from speccorrect.tally import Tally, calibrated, cells, observe
from specmodels.initialise import initialise
from specrun import DraftOptions, Engine, Sampling, load_engine
from specrun.assemble import drafter_folder
from specrun.auto import Choice, Tried
from specrun.methods import method as find_method
from spectrain.record import commit

DOMAINS = ("math", "code", "story", "stdlib")
FIXED = (2, 4, 8)
MIX = "mix"
RANDOM = "auto, random drafter"
POLICIES = ("threshold", "libraspec", "dspark", "caddtree", "measured")


def engines_of(name: str, rows: int, wanted: list[str]) -> dict[str, dict[str, Engine]]:
    """One engine per policy and stream of prompts; all share one target.

    Those that judge while they decode learn from one prompt for the next, so each stream has one of its own.
    """
    plain = load_engine("tiny", "ar")
    target = plain.parts.target
    found = {"plain": plain, "all rows": load_engine("tiny", name, target=target)}
    for policy in [*(f"fixed={count}" for count in FIXED if count < rows), *POLICIES]:
        if policy not in wanted:
            continue
        found[policy] = load_engine("tiny", name, options=DraftOptions(policy=policy), target=target)
    judged = {
        "auto": lambda: load_engine("tiny", "auto", target=target),
        RANDOM: lambda: hopeless(load_engine("tiny", name, options=DraftOptions(policy="measured"))),
    }
    return {policy: dict.fromkeys(DOMAINS, engine) for policy, engine in found.items()} | {
        policy: {stream: new() for stream in (*DOMAINS, MIX)} for policy, new in judged.items()
    }


def hopeless(engine: Engine) -> Engine:
    """The same with a drafter of random weights, judged from an even start: the fallback has to find out."""
    assert engine.parts.drafter is not None
    assert engine.parts.costs is not None
    initialise(engine.parts.drafter, torch.Generator().manual_seed(0), std=0.02)
    costs = engine.parts.costs
    seconds, plain = costs.seconds(128, 1), costs.plain_at(128)
    even = Tried(method=engine.method.name, tokens=seconds / plain, seconds=seconds, plain=plain)
    return Engine(
        engine.parts.target,
        engine.method,
        drafter=engine.parts.drafter,
        corrector=engine.parts.corrector,
        tokenizer=engine.tokenizer,
        template=engine.prompting.template,
        stop_ids=engine.stop_ids,
        options=engine.options,
        costs=costs,
        fallback=Choice(tried=(even,)).fallback,
    )


def decode(engine: Engine, prompts: list[list[int]], tokens: int) -> dict[str, float]:
    """Sums over the prompts: tokens behind the first ones, rounds, rows, seconds of the processor."""
    total = {"tokens": 0, "rounds": 0, "rows": 0, "seconds": 0.0}
    for prompt in prompts:
        pieces = engine.stream(prompt, Sampling(max_new_tokens=tokens))
        next(pieces)  # the prompt is read, the first token is out
        started = time.process_time()
        answers = [piece.generation for piece in pieces]
        total["seconds"] += time.process_time() - started
        if answers and answers[-1] is not None:
            stats = answers[-1].stats
            total["tokens"] += stats.round_tokens
            total["rounds"] += stats.rounds
            total["rows"] += stats.verified_rows
    return total


def measure(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per policy and domain, and one for the mix of all domains."""
    rows = load_engine("tiny", name).plan_for([Sampling()]).rows
    engines = engines_of(name, rows, options.policies)
    plain = engines["plain"]["math"]
    prompts = {
        domain: [plain.chat_ids(item.prompt) for item in spectiny.prompts(domain)[: options.prompts]]
        for domain in DOMAINS
    }
    in_turns = [prompt for some in zip(*prompts.values(), strict=True) for prompt in some]
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    names = list(engines)
    for streams in engines.values():
        decode(streams["math"], [prompts["story"][0]], 24)
    for repeat in range(options.repeats):
        turn = repeat % len(names)
        for policy in names[turn:] + names[:turn]:
            streams = engines[policy]
            seen = {domain: decode(streams[domain], prompts[domain], options.tokens) for domain in DOMAINS}
            if MIX in streams:
                seen[MIX] = decode(streams[MIX], in_turns, options.tokens)
            else:
                seen[MIX] = {key: sum(one[key] for one in seen.values()) for key in seen["math"]}
            for stream, run in seen.items():
                runs.setdefault((policy, stream), []).append(run)
        print(f"{name}: repeat {repeat + 1} of {options.repeats}", file=sys.stderr)
    speed = {key: [run["tokens"] / run["seconds"] for run in found] for key, found in runs.items()}
    return [
        {
            "method": name,
            "policy": policy,
            "domain": domain,
            "tokens_per_round": round(found[-1]["tokens"] / found[-1]["rounds"], 3),
            "rows_per_token": round(found[-1]["rows"] / found[-1]["tokens"], 3),
            "tokens_per_second": round(statistics.median(speed[policy, domain]), 1),
            "spread": [round(min(speed[policy, domain]), 1), round(max(speed[policy, domain]), 1)],
            # of the same repeat, whose moments are neighbours
            "over_plain": round(_median_ratio(speed[policy, domain], speed["plain", domain]), 3),
            "over_all_rows": round(_median_ratio(speed[policy, domain], speed["all rows", domain]), 3),
        }
        for (policy, domain), found in runs.items()
    ]


def _median_ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


@torch.no_grad()
def calibration(name: str, options: argparse.Namespace, temperature: float) -> list[dict[str, Any]]:
    """Expected calibration error of the probability that a chain is accepted up to a depth, before and after."""
    engine = load_engine("tiny", name)
    seen: dict[int, list[tuple[float, float, bool]]] = {}
    slots = engine.plan_for([Sampling()]).slots
    for domain in DOMAINS:
        for item in spectiny.prompts(domain)[: options.prompts]:
            tally = Tally.fresh(1, slots)

            def watch(one: Any, tally: Tally = tally) -> None:
                step = torch.nn.functional.pad(one.tree.score_BN.diff(dim=1).exp(), (1, 0))
                cell = cells(step, one.tree.depth_BN)
                better = calibrated(step, cell, tally)
                accepted = int(one.verdict.count_B[0]) - 1
                raw, mended = step[0, 1:].cumprod(0).tolist(), better[0, 1:].cumprod(0).tolist()
                for depth in range(slots):
                    seen.setdefault(depth + 1, []).append((raw[depth], mended[depth], accepted > depth))
                place = torch.arange(slots + 1)[None]
                observe(tally, step, cell, (place > 0) & (place <= accepted + 1), place <= accepted)

            ids = engine.chat_ids(item.prompt)
            for _ in engine.stream(
                ids, Sampling(max_new_tokens=options.tokens, temperature=temperature), watch=watch
            ):
                pass
    rows = []
    for depth, found in sorted(seen.items()):
        raw, mended, happened = (torch.tensor(column) for column in zip(*found, strict=True))
        rows.append(
            {
                "method": name,
                "temperature": temperature,
                "depth": depth,
                "rounds": len(found),
                "accepted": round(float(happened.float().mean()), 4),
                "predicted": round(float(raw.mean()), 4),
                "predicted_calibrated": round(float(mended.mean()), 4),
                "error": round(float(calibration_error(raw, happened)), 4),
                "error_calibrated": round(float(calibration_error(mended, happened)), 4),
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: one line per policy, tokens per second over plain decoding by domain."""
    lines = []
    for name in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == name]
        head = ["policy", "tokens per round", "rows per token", *(f"{d}" for d in (*DOMAINS, MIX))]
        lines += ["", f"`{name}`", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for policy in dict.fromkeys(row["policy"] for row in mine):
            by_domain = {row["domain"]: row for row in mine if row["policy"] == policy}
            mix = by_domain[MIX]
            cells_ = [f"{mix['tokens_per_round']:.2f}", f"{mix['rows_per_token']:.2f}"]
            cells_ += [f"{by_domain[domain]['tokens_per_second']:.0f}" for domain in (*DOMAINS, MIX)]
            lines.append(f"| {policy} | " + " | ".join(cells_) + " |")
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Three panels per method: tokens per round, rows per token, tokens per second, on the mix."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  # only for this
    from matplotlib.figure import Figure  # noqa: PLC0415

    names = list(dict.fromkeys(row["method"] for row in rows))
    panels = (
        ("tokens_per_round", "tokens per round"),
        ("rows_per_token", "rows verified per token"),
        ("tokens_per_second", "tokens per second"),
    )
    figure = Figure(figsize=(12, 4.2 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(names), len(panels), squeeze=False)
    for line, name in enumerate(names):
        mine = [row for row in rows if row["method"] == name and row["domain"] == MIX]
        labels = [row["policy"] for row in mine]
        for column, (key, title) in enumerate(panels):
            axis = axes[line][column]
            colours = ["tab:orange" if label in {"measured", "auto"} else "tab:blue" for label in labels]
            axis.barh(labels, [row[key] for row in mine], color=colours)
            axis.invert_yaxis()
            axis.set_title(f"{name}: {title}" if column == 0 else title)
            if column:
                axis.set_yticklabels([])
            axis.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", default=["dflash", "dominotree"])
    every = [*(f"fixed={count}" for count in FIXED), *POLICIES]
    parser.add_argument("--policies", nargs="+", default=every, choices=every)
    parser.add_argument("--prompts", type=int, default=2, help="of each domain")
    parser.add_argument("--tokens", type=int, default=48, help="new tokens at most")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the run here")
    parser.add_argument("--plot", type=Path, help="draw the run here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for name in options.methods for row in measure(name, options)]
    chains = [name for name in options.methods if find_method(name).growth == "chain"]
    errors = [row for name in chains for value in (0.0, 1.0) for row in calibration(name, options, value)]
    print(table(rows))
    if options.plot is not None:
        plot(rows, options.plot)
    if options.json is not None:
        run = {
            "commit": commit(),
            "command": sys.argv[1:],
            "machine": {
                "cpu": platform.processor() or platform.machine(),
                "torch": torch.__version__,
                "threads": 1,
            },
            "weights": {name: _stamp(name) for name in options.methods},
            "results": rows,
            "calibration": errors,
        }
        options.json.write_text(json.dumps(run, indent=1) + "\n")


def _stamp(name: str) -> str:
    """A mark of the drafter's weights, which may be replaced by better ones."""
    weights = drafter_folder("tiny", find_method(name)) / "model.safetensors"
    return hashlib.sha256(weights.read_bytes()).hexdigest()[:12]


if __name__ == "__main__":
    main()
