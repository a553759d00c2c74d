"""Measure the shipped family on held-out documents: losses, greedy samples, and tokens per round of the drafter.

Run from the root of the repository, after export.py: `python tools/train_tiny/report.py target`. It needs spectrain and
tokenizers; `drafter` needs the rollouts too. The report goes to the screen.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from family import BUILD, DRAFTER_FOLDER, IM_END, TARGET_FOLDER
from tokenizers import Tokenizer

from specmodels.checkpoint import load_drafter, load_target
from specmodels.qwen3 import Qwen3
from spectiny.document import TRAINED_DOMAINS
from spectrain.data import Shard, read_shard
from spectrain.drafting import greedy_acceptance
from spectrain.pretraining import losses_by_domain
from spectrain.sampling import Request, sample_responses

SAMPLES = 2  # of each domain
PROCEDURAL = ("math", "code", "story")


def report_target(target: Qwen3) -> None:
    """Losses of the rounded weights on all held-out documents, and what they answer."""
    valid = read_shard(BUILD / "corpus", "valid")
    losses = losses_by_domain(target, valid, TRAINED_DOMAINS, row=384)
    print("nats per response token:", {name: round(loss, 4) for name, loss in losses.items()})
    places = [
        place for i in range(len(TRAINED_DOMAINS)) for place in np.flatnonzero(valid.domains == i)[:SAMPLES]
    ]
    prompts = [valid.document(place)[: valid.prompt_lengths[place]].tolist() for place in places]
    requests = [Request(prompt, 0.0) for prompt in prompts]
    answers = sample_responses(target, requests, end=IM_END, longest=200, generator=torch.Generator())
    tokenizer = Tokenizer.from_file(str(TARGET_FOLDER / "tokenizer.json"))
    for place, prompt, answer in zip(places, prompts, answers, strict=True):
        print(f"\n=== {TRAINED_DOMAINS[int(valid.domains[place])]}, {len(answer)} tokens")
        print(tokenizer.decode(prompt + answer, skip_special_tokens=False))


def report_drafter(target: Qwen3, folder: Path, shard: Shard) -> None:
    """Tokens per round of greedy decoding, by domain."""
    drafter = load_drafter(folder, target.config, dtype=torch.float32).drafter
    found = greedy_acceptance(target, drafter, shard, TRAINED_DOMAINS)
    for name, counts in found.items():
        print(
            f"{name}: {counts.tokens_per_round:.3f} tokens per round, {counts.tokens} tokens, {counts.rounds} rounds"
        )
    tokens = sum(found[name].tokens for name in PROCEDURAL)
    print(f"{', '.join(PROCEDURAL)}: {tokens / sum(found[name].rounds for name in PROCEDURAL):.3f}")


def main() -> None:
    """Report; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("target", "drafter"))
    parser.add_argument("--target", type=Path, default=TARGET_FOLDER)
    parser.add_argument("--drafter", type=Path, default=DRAFTER_FOLDER)
    parser.add_argument("--data", default="rollouts", help="folder under build/tiny/")
    options = parser.parse_args()
    target = load_target(options.target, dtype=torch.float32)
    if options.what == "target":
        report_target(target)
    else:
        report_drafter(target, options.drafter, read_shard(BUILD / options.data, "valid"))


if __name__ == "__main__":
    main()
