"""Train the embedded drafter on the target's own answers.

Run from the root of the repository, after rollouts.py: `python tools/train_tiny/drafter.py`. It needs spectrain and
tqdm. Log, record and checkpoints go into build/tiny/drafter/; export.py makes the shipped files from them. A run that
was stopped goes on with --resume; with more or fewer --steps too, as long as its learning rate has not begun to fall.
"""

import argparse
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from family import BUILD, DRAFTER, SEED, SOURCES, TARGET_FOLDER
from tqdm import tqdm

from specmodels.checkpoint import load_target
from specmodels.dflash import DFlash
from specmodels.initialise import initialise
from spectiny.document import TRAINED_DOMAINS
from spectrain.data import PackedRows, Shard, concatenate, read_shard, select, shard_hash
from spectrain.drafting import dflash_objective, greedy_acceptance
from spectrain.loop import Loop, LoopConfig
from spectrain.optim import MixedOptimiser, OptimiserConfig, Schedule
from spectrain.record import write_record

FloatArray = npt.NDArray[np.float32]

ROW = 320  # tokens of a packed row; the few answers beyond it are left out
WATCHED = 16  # held-out responses of each domain that are measured during the run


def watched(shard: Shard, count: int) -> Shard:
    """The first few documents of every domain."""
    return select(
        shard,
        np.concatenate([np.flatnonzero(shard.domains == i)[:count] for i in range(len(TRAINED_DOMAINS))]),
    )


def usable(folder: Path) -> tuple[Shard, FloatArray]:
    """Training answers of a folder that fit a row, and their temperatures, without library code drawn at temperature 1.

    That code is close to noise: it would be half of the loss, and nothing can be learnt from it.
    """
    shard, temperatures = read_shard(folder, "train"), np.load(folder / "train.temperatures.npy")
    noise = (shard.domains == TRAINED_DOMAINS.index("stdlib")) & (temperatures == 1)
    kept = np.flatnonzero((shard.lengths <= ROW) & ~noise)
    return select(shard, kept), temperatures[kept]


def main() -> None:
    """Train; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_800)
    parser.add_argument("--rows", type=int, default=10, help="packed rows of a batch")
    parser.add_argument("--anchors", type=int, default=20, help="blocks of a row")
    parser.add_argument("--gamma", type=float, default=7.0)
    parser.add_argument("--matrix-lr", type=float, default=0.02)
    parser.add_argument("--taps", type=int, nargs="+", default=list(DRAFTER.target_layers))
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--target", type=Path, default=TARGET_FOLDER)
    parser.add_argument("--data", nargs="+", default=["rollouts"], help="folders under build/tiny/")
    parser.add_argument("--name", default="drafter", help="folder under build/tiny/")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()

    train = concatenate([usable(BUILD / name)[0] for name in options.data])
    valid = read_shard(BUILD / options.data[0], "valid")
    rows = PackedRows(train, batch=options.rows, row=ROW, seed=SEED)
    target = load_target(options.target, dtype=torch.float32).requires_grad_(requires_grad=False)
    shape = replace(DRAFTER, target_layers=tuple(options.taps))
    drafter = DFlash(shape)
    initialise(drafter, torch.Generator().manual_seed(SEED), residual_layers=len(shape.layers))
    config = OptimiserConfig(matrix_lr=options.matrix_lr, other_lr=3e-3, matrix_decay=0.02)
    schedule = Schedule(steps=options.steps, warmup=30)
    folder = BUILD / options.name
    record = folder / "record.json"
    if options.resume and record.is_file():  # the part that has run keeps its record
        parts = len(list(folder.glob("record*.json")))
        record.replace(folder / f"record-part-{parts}.json")
    write_record(
        record,
        seed=SEED,
        data={"train": shard_hash(train), "valid": shard_hash(valid)},
        sources=SOURCES,
        model=asdict(shape),
        optimiser=asdict(config),
        schedule=asdict(schedule),
        rows=options.rows,
        row_tokens=ROW,
        anchors=options.anchors,
        gamma=options.gamma,
        autocast="bfloat16",
    )
    watch = watched(valid, WATCHED)

    def evaluate() -> dict[str, float]:
        found = greedy_acceptance(target, drafter, watch, TRAINED_DOMAINS)
        return {name: counts.tokens_per_round for name, counts in found.items()}

    with tqdm(total=options.steps, mininterval=10.0) as bar:

        def show(step: int, values: Mapping[str, float]) -> None:
            bar.update(step - bar.n)
            if values:
                bar.set_postfix({name: f"{value:.3f}" for name, value in values.items()}, refresh=False)

        Loop(
            model=drafter,
            optimiser=MixedOptimiser([drafter], config),
            schedule=schedule,
            config=LoopConfig(
                seed=SEED,
                autocast=torch.bfloat16,
                evaluate_every=500,
                checkpoint_every=100,
                milestones=(schedule.decay_start,),
            ),
            folder=folder,
            batch=rows.batch,
            objective=dflash_objective(
                target, drafter, anchors=options.anchors, gamma=options.gamma, compiled=not options.eager
            ),
            evaluate=evaluate,
            progress=show,
        ).run(resume=options.resume)


if __name__ == "__main__":
    main()
