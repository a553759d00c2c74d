"""Pre-train the embedded target on the corpus.

Run from the root of the repository, after corpus.py: `python tools/train_tiny/target.py`. It needs spectrain and tqdm.
Log, record and checkpoints go into build/tiny/target/; export.py makes the shipped files from them. A run that was
stopped goes on with --resume; with more or fewer --steps too, as long as its learning rate has not begun to fall.
"""

import argparse
from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import torch
from family import BUILD, SEED, SOURCES, TARGET
from tqdm import tqdm

from specmodels.initialise import initialise
from specmodels.qwen3 import Qwen3
from spectiny.document import TRAINED_DOMAINS
from spectrain.data import PackedRows, Shard, read_shard, select, shard_hash
from spectrain.loop import Loop, LoopConfig
from spectrain.optim import MixedOptimiser, OptimiserConfig, Schedule
from spectrain.pretraining import losses_by_domain, next_token_objective
from spectrain.record import write_record

ROW = 384  # tokens of a packed row: the longest document
ROWS = 12  # rows of a batch
WATCHED = 48  # held-out documents of each domain that are measured during the run


def watched(shard: Shard) -> Shard:
    """The first few documents of every domain."""
    return select(
        shard,
        np.concatenate([np.flatnonzero(shard.domains == i)[:WATCHED] for i in range(len(TRAINED_DOMAINS))]),
    )


def main() -> None:
    """Train; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4_800)
    parser.add_argument("--name", default="target", help="folder under build/tiny/")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()

    corpus = BUILD / "corpus"
    train, valid = read_shard(corpus, "train"), read_shard(corpus, "valid")
    rows = PackedRows(train, batch=ROWS, row=ROW, seed=SEED)
    model = Qwen3(TARGET)
    initialise(model, torch.Generator().manual_seed(SEED), residual_layers=TARGET.num_layers)
    config = OptimiserConfig(matrix_lr=0.02, other_lr=4e-3, matrix_decay=0.02)
    schedule = Schedule(steps=options.steps, warmup=20)
    loop_config = LoopConfig(
        seed=SEED,
        autocast=torch.bfloat16,
        evaluate_every=250,
        checkpoint_every=100,
        milestones=(schedule.decay_start,),
    )
    folder = BUILD / options.name
    write_record(
        folder / "record.json",
        seed=SEED,
        data={"train": shard_hash(train), "valid": shard_hash(valid)},
        sources=SOURCES,
        model=asdict(TARGET),
        optimiser=asdict(config),
        schedule=asdict(schedule),
        rows=ROWS,
        row_tokens=ROW,
        autocast="bfloat16",
    )
    watch = watched(valid)
    with tqdm(total=options.steps, mininterval=10.0) as bar:

        def show(step: int, values: Mapping[str, float]) -> None:
            bar.update(step - bar.n)
            if values:
                bar.set_postfix({name: f"{value:.3f}" for name, value in values.items()}, refresh=False)

        Loop(
            model=model,
            optimiser=MixedOptimiser([model], config),
            schedule=schedule,
            config=loop_config,
            folder=folder,
            batch=rows.batch,
            objective=next_token_objective(model, compiled=True),
            evaluate=lambda: losses_by_domain(model, watch, TRAINED_DOMAINS, row=ROW),
            progress=show,
        ).run(resume=options.resume)


if __name__ == "__main__":
    main()
