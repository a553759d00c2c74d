"""The embedded family through other people's loops and through this engine: same weights, prompts, process, and ids.

`python tools/bench/peers.py --json tools/bench/results/peers.json` needs what the nox session `parity` installs. Contenders
take turns in an order that rotates, so that a slow minute falls on all of them. Times are seconds of this process on
the CPU, one thread, prompt included: what else runs on the machine is not in them. Every contender has to give the ids of
plain decoding, or nothing is reported.
"""

import argparse
import json
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from dflash import model as dflash

import spectiny
from specrun import Sampling, load_engine
from spectrain.record import commit

Contender = Callable[[list[int]], list[int]]
OURS = ("ar", "dflash", "dominotree", "delstree", "dflash2tree")


def theirs(tokens: int, stops: list[int]) -> dict[str, Contender]:
    """Plain and prompt-lookup decoding of transformers, and the authors' loop with both of its drafters."""
    folder = spectiny.folder("qwen3-tiny")
    target = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def generate(ids: list[int], **options: Any) -> list[int]:
        given = torch.tensor([ids])
        settings = {
            "max_new_tokens": tokens,
            "do_sample": False,
            "eos_token_id": stops,
            "pad_token_id": stops[0],
        }
        return target.generate(given, attention_mask=torch.ones_like(given), **settings, **options)[
            0, len(ids) :
        ].tolist()

    def loop(drafter: Any) -> Contender:
        return lambda ids: dflash.dflash_generate(drafter, target, torch.tensor([ids]), tokens, stops)[
            0, len(ids) :
        ].tolist()

    drafters = {
        "dflash 0.1.0": dflash.DFlashDraftModel.from_pretrained(
            folder.parent / "qwen3-tiny-dflash", dtype=torch.float32
        ),
        "dflash 0.1.0, DFlash 2": dflash.DFlash2DraftModel.from_pretrained(
            folder.parent / "qwen3-tiny-dflash2", dtype=torch.float32
        ),
    }
    return {
        "transformers": generate,
        "transformers, prompt lookup": lambda ids: generate(ids, prompt_lookup_num_tokens=10),
        **{name: loop(drafter.eval()) for name, drafter in drafters.items()},
    }


def ours(tokens: int, names: list[str], *, compiled: bool) -> dict[str, Contender]:
    """Methods of specrun as they stand, or compiled."""

    def contender(name: str) -> Contender:
        engine = load_engine("tiny", name)
        if compiled:
            engine.compile()
        return lambda ids: engine.generate(ids, Sampling(max_new_tokens=tokens)).token_ids

    return {f"specrun {name}{', compiled' if compiled else ''}": contender(name) for name in names}


def measure(
    contenders: dict[str, Contender], prompts: list[list[int]], repeats: int
) -> dict[str, list[float]]:
    """CPU seconds of every contender over all prompts, per repeat."""
    expected = None
    for name, run in contenders.items():
        answers = [run(ids) for ids in prompts]
        expected = expected or answers
        wrong = sum(got != want for got, want in zip(answers, expected, strict=True))
        if wrong:
            raise SystemExit(f"{name}: {wrong} of {len(prompts)} answers are not those of plain decoding")
    names, times = list(contenders), {name: [] for name in contenders}
    for repeat in range(repeats):
        turn = repeat % len(names)
        for name in names[turn:] + names[:turn]:
            started = time.process_time()
            for ids in prompts:
                contenders[name](ids)
            times[name].append(time.process_time() - started)
    return times | {"tokens": [float(sum(map(len, expected or [])))]}


def report(times: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Tokens per second: median and extremes, and how many times those of transformers' plain decoding."""
    tokens = times.pop("tokens")[0]
    plain = statistics.median(times["transformers"])
    return [
        {
            "contender": name,
            "tokens_per_second": round(tokens / statistics.median(taken), 1),
            "spread": [round(tokens / max(taken), 1), round(tokens / min(taken), 1)],
            "times_transformers": round(plain / statistics.median(taken), 2),
        }
        for name, taken in times.items()
    ]


@torch.inference_mode()
def main() -> None:
    """Measure every domain, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--domains", nargs="+", default=["math", "code"], choices=spectiny.DOMAINS)
    parser.add_argument("--prompts", type=int, default=6, help="of each domain")
    parser.add_argument("--tokens", type=int, default=96, help="of an answer at most")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--methods", nargs="+", default=list(OURS))
    parser.add_argument("--compiled", nargs="*", default=[], help="methods to measure compiled as well")
    parser.add_argument("--json", type=Path, help="write the run here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    engine = load_engine("tiny", "ar")
    contenders = {
        **theirs(options.tokens, list(engine.stop_ids)),
        **ours(options.tokens, options.methods, compiled=False),
        **ours(options.tokens, options.compiled, compiled=True),
    }
    results = {}
    for domain in options.domains:
        prompts = [engine.chat_ids(item.prompt) for item in spectiny.prompts(domain)[: options.prompts]]
        results[domain] = report(measure(contenders, prompts, options.repeats))
        for row in results[domain]:
            low, high = row["spread"]
            print(
                f"{domain:6} {row['contender']:30} {row['tokens_per_second']:8.1f} tokens/s"
                f" ({low:.1f} to {high:.1f}) {row['times_transformers']:5.2f} x"
            )
    if options.json is not None:
        versions = {name: version(name) for name in ("torch", "transformers", "dflash")}
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        run = {"commit": commit(), "command": sys.argv[1:], "versions": versions, **settings}
        run |= {
            "machine": platform.machine(),
            "clock": "CPU seconds of the process, one thread",
            "results": results,
        }
        options.json.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
