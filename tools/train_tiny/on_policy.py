"""Serve prompts of a shifted domain, let the drafter learn from the answers as they come, and foretell useful lengths.

Run from the root of the repository: `python tools/train_tiny/on_policy.py`. It needs spectrain, specrun, spectiny and tqdm.
First a head of lengths learns beside the embedded drafter as it is, from answers in the trained domains; then both learn
on-policy from word problems of kinds that no training saw. Weights stay in build/tiny/on-policy/, which a second call
with --resume goes on with; the report goes into tools/train_tiny/results/.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from family import BUILD, DRAFTER_FOLDER, SEED, SOURCES, TARGET_FOLDER
from tqdm import tqdm

from speccorrect.correctors.none import NoCorrector
from speccorrect.length_head import LengthHead
from specrun import DraftOptions, Engine, Sampling, load_engine
from spectiny.corpus.documents import documents
from spectiny.heldout import prompts
from spectrain.adaflash import adaflash_objective
from spectrain.checkpoints import load_run
from spectrain.data import PackedRows, shard_hash
from spectrain.heads import Pair, save_pair
from spectrain.loop import Loop, LoopConfig
from spectrain.objectives.adaflash import CLIP, HARD
from spectrain.on_policy import OnPolicy, OnPolicyConfig
from spectrain.optim import GroupedOptimiser, MixedOptimiser, OptimiserConfig, Schedule
from spectrain.record import write_record
from spectrain.runs.corpus import Prompt, answer_prompts, read_corpus
from spectrain.runs.recipe import DataPart

SHIFTED = "math-shifted"
TRAINED = ("math", "code", "story")
MEASURED = ("math", SHIFTED)
PROMPT_SEED = 40_009  # no other prompt of the family comes from it
ANSWERS = DataPart(prompts="generated", documents=480, held_out=6, temperatures=(0.0,), max_new_tokens=128)
DRAFTER = OptimiserConfig(matrix_lr=0.002, other_lr=4e-4, matrix_decay=0.02)
HEAD = OptimiserConfig(matrix_lr=0.01, other_lr=2e-3)
HEAD_STEPS = 160
WIDTH = 64  # of the head's bottleneck: a third of the drafter's
MARGINS = (1.3, 2.0, 3.0)
RESAMPLES = 2_000
ANCHORS, GAMMA = 16, 7.0


def fresh(domain: str, count: int) -> list[str]:
    """Different prompts of a domain that are not held out."""
    held = {document.prompt for document in prompts(domain)}
    found = dict.fromkeys(document.prompt for document in documents(domain, PROMPT_SEED, 2 * count))
    return [prompt for prompt in found if prompt not in held][:count]


def measure(engine: Engine, domain: str, count: int) -> dict[str, Any]:
    """Tokens and verified rows of a round on held-out prompts, one after the other: a batch verifies its longest.

    The intervals are those of a bootstrap over prompts, 95 %.
    """
    rows = []
    for document in prompts(domain)[:count]:
        stats = engine.generate(engine.chat_ids(document.prompt), Sampling(max_new_tokens=96)).stats
        rows.append((stats.round_tokens, stats.rounds, stats.verified_rows))
    counts = np.array(rows)
    tokens, rounds, verified = counts.sum(axis=0).tolist()
    chosen = counts[np.random.default_rng(0).integers(0, count, (RESAMPLES, count))].sum(axis=1)
    low, high = np.quantile(chosen[:, 0] / chosen[:, 1], [0.025, 0.975])
    return {
        "tokens_per_round": round(tokens / rounds, 4),
        "interval": [round(float(low), 3), round(float(high), 3)],
        "rows_per_round": round(verified / rounds, 3),
        "rounds": rounds,
        "prompts": counts[:, :2].tolist(),
    }


def compare(folder: Path, count: int) -> dict[str, dict[str, dict[str, Any]]]:
    """What a drafter's folder yields when whole blocks are verified, and under its head of lengths.

    Every cell is kept beside the weights, so that a stopped measurement goes on.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for policy in ("whole blocks", *(f"adaflash={margin:g}" for margin in MARGINS)):
        path = folder / f"{policy}.json"
        if not path.is_file():
            options = DraftOptions(policy=None if policy == "whole blocks" else policy)
            engine = load_engine(TARGET_FOLDER, "dflash", draft=folder, options=options)
            cells = {domain: measure(engine, domain, count) for domain in MEASURED}
            path.write_text(json.dumps(cells), encoding="utf-8")
        found[policy] = json.loads(path.read_text(encoding="utf-8"))
    return found


def against(cell: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Change of tokens and of rows per round in percent; the interval of the former is paired over prompts, 95 %."""
    counts = [np.array(one["prompts"]) for one in (cell, base)]
    chosen = np.random.default_rng(0).integers(0, len(counts[0]), (RESAMPLES, len(counts[0])))
    ours, theirs = (one[chosen].sum(axis=1) for one in counts)
    change = 100 * (ours[:, 0] / ours[:, 1] / (theirs[:, 0] / theirs[:, 1]) - 1)

    def percent(key: str) -> float:
        return round(100 * (cell[key] / base[key] - 1), 2)

    return {
        "tokens_percent": percent("tokens_per_round"),
        "interval": [round(float(value), 2) for value in np.quantile(change, [0.025, 0.975])],
        "rows_percent": percent("rows_per_round"),
    }


def bar_of(label: str, steps: int) -> Callable[[int, Mapping[str, float]], None]:
    """A progress bar for a loop."""
    bar = tqdm(total=steps, desc=label, mininterval=5.0)

    def show(step: int, values: Mapping[str, float]) -> None:
        bar.update(step - bar.n)
        if values:
            bar.set_postfix({key: f"{value:.3f}" for key, value in values.items()}, refresh=False)

    return show


def save(pair: Pair, engine: Engine, folder: Path) -> None:
    """Write drafter and head of lengths under their public names."""
    config, head = engine.parts.target.config, pair.head
    assert isinstance(head, LengthHead), head
    save_pair(pair.drafter, "none", NoCorrector(), config, folder, dtype=torch.bfloat16, length_head=head)


def offline(engine: Engine, pair: Pair, folder: Path, *, resume: bool) -> str:
    """Train the head alone beside the drafter as it is; returns the hash of the data."""
    asked = [Prompt(text, domain) for domain in TRAINED for text in fresh(domain, 180)]
    if not (folder / "data" / "domains.json").is_file():
        answer_prompts(engine.plain(), asked, ANSWERS, folder / "data", lambda done, total: None)
    corpus = read_corpus(folder / "data", ANSWERS, engine.parts.target.config.vocab_size)
    rows = PackedRows(corpus.train, batch=ANSWERS.rows, row=ANSWERS.row, seed=SEED)
    Loop(
        model=pair.head,
        optimiser=MixedOptimiser([pair.head], HEAD),
        schedule=Schedule(steps=HEAD_STEPS, warmup=10),
        config=LoopConfig(seed=SEED, autocast=torch.bfloat16, checkpoint_every=40),
        folder=folder,
        batch=rows.batch,
        objective=adaflash_objective(
            engine.parts.target, pair, anchors=ANCHORS, gamma=GAMMA, drafter_learns=False
        ),
        progress=bar_of("lengths", HEAD_STEPS),
    ).run(resume=resume)
    return shard_hash(corpus.train)


def on_policy(
    engine: Engine, pair: Pair, folder: Path, config: OnPolicyConfig, rounds: int, *, resume: bool
) -> OnPolicy:
    """Train drafter and head on the engine's answers as they come."""
    steps = rounds * config.updates
    ids = [engine.chat_ids(prompt) for prompt in fresh(SHIFTED, rounds * config.prompts)]
    policy = OnPolicy(engine, pair.drafter, ids, config, folder / "rounds")

    def held_out() -> dict[str, float]:
        policy.serve()
        return {SHIFTED: float(measure(engine, SHIFTED, 12)["tokens_per_round"])}

    Loop(
        model=pair,
        optimiser=GroupedOptimiser(
            [MixedOptimiser([pair.drafter], DRAFTER), MixedOptimiser([pair.head], HEAD)]
        ),
        schedule=Schedule(steps=steps, warmup=5, decay=0.5),
        config=LoopConfig(
            seed=SEED,
            autocast=torch.bfloat16,
            evaluate_every=4 * config.updates,
            checkpoint_every=config.updates // 2,
        ),
        folder=folder,
        batch=policy.batch,
        objective=adaflash_objective(engine.parts.target, pair, anchors=ANCHORS, gamma=GAMMA),
        evaluate=held_out,
        progress=bar_of("on-policy", steps),
    ).run(resume=resume)
    return policy


def main() -> None:
    """Train and report; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="of serving and learning")
    parser.add_argument("--prompts", type=int, default=32, help="answered in a round")
    parser.add_argument("--updates", type=int, default=10, help="steps after a round")
    parser.add_argument("--measured", type=int, default=24, help="held-out prompts of a domain")
    parser.add_argument("--name", default="on-policy", help="folder under build/tiny/, and of the report")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    folder = BUILD / options.name
    engine = load_engine(TARGET_FOLDER, "dflash", draft=DRAFTER_FOLDER)
    trained = load_engine(TARGET_FOLDER, "dflash", draft=DRAFTER_FOLDER).parts.drafter
    assert trained is not None, "the method drafts"
    torch.manual_seed(SEED)
    pair = Pair(trained, LengthHead(trained.config.hidden_size, WIDTH))
    hashed = offline(engine, pair, folder / "lengths", resume=options.resume)
    save(pair, engine, folder / "offline")

    trained.requires_grad_(requires_grad=True)
    config = OnPolicyConfig(
        prompts=options.prompts,
        buffer=4,
        updates=options.updates,
        row=ANSWERS.row,
        rows=ANSWERS.rows,
        max_new_tokens=ANSWERS.max_new_tokens,
        # lengths depend on the temperature, so the head has to learn them at the one that is served
        temperature=0.0,
        seed=SEED,
    )
    policy = on_policy(engine, pair, folder / "rounds", config, options.rounds, resume=options.resume)
    save(pair, engine, folder / "online")

    served = [one._asdict() | {"tokens_per_round": round(one.tokens_per_round, 4)} for one in policy.served()]
    drafters = {name: compare(folder / name, options.measured) for name in ("offline", "online")}
    whole = {name: cells["whole blocks"] for name, cells in drafters.items()}
    changes: dict[str, Any] = {
        "online over offline": {
            domain: against(whole["online"][domain], whole["offline"][domain]) for domain in MEASURED
        }
    }
    for name, cells in drafters.items():
        for policy in list(cells)[1:]:
            changes[f"{name}, {policy} over whole blocks"] = {
                domain: against(cells[policy][domain], whole[name][domain]) for domain in MEASURED
            }
    write_record(
        Path(__file__).parent / "results" / f"{options.name}.json",
        seed=SEED,
        data={"lengths": hashed},
        sources=SOURCES,
        on_policy=asdict(config),
        objective={"hard": HARD, "clip_nats": CLIP, "anchors": ANCHORS, "gamma": GAMMA},
        optimisers={"drafter": asdict(DRAFTER), "head": asdict(HEAD)},
        steps={"lengths": HEAD_STEPS, "on_policy": options.rounds * options.updates},
        updates=load_run(folder / "rounds" / "last.pt").step,
        served=served,
        drafters=drafters,
        changes=changes,
    )
    print(json.dumps(changes, indent=1))


if __name__ == "__main__":
    main()
