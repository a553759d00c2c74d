"""Train the correction heads of the embedded family, each together with a copy of the trained drafter.

Run from the root of the repository, after drafter.py: `python tools/train_tiny/heads.py all`. It needs spectrain, specrun
and tqdm. `dflash` is the control: the drafter alone, trained on for the same steps on the same batches. Checkpoints and
logs go into build/tiny/heads/, the shipped folders and their records into the package's data. A run that was stopped goes
on with --resume.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from drafter import ROW, usable, watched
from export import add_ids
from family import BUILD, DATA, DRAFTER, MASK, RECORDS, SEED, SOURCES, TARGET, TARGET_FOLDER, VOCABULARY
from torch import Tensor, nn
from tqdm import tqdm

from speccorrect.correctors.dblast import Dblast, DblastConfig
from speccorrect.correctors.dels import DeLS, DeLSConfig
from speccorrect.correctors.dflash2 import DFlash2, DFlash2Config
from speccorrect.correctors.domino import Domino, DominoConfig
from speccorrect.correctors.dspark import DSpark, DSparkConfig
from speccorrect.correctors.lilicorr import LiLiCorr, LiLiCorrConfig
from speccorrect.correctors.none import NoCorrector
from speccorrect.correctors.xpress import XPress, XPressConfig
from speccorrect.source import HeadShape
from specmodels.checkpoint import load_target
from specmodels.dflash import ConvConfig, DFlash
from specmodels.dflash.conv import BlockConv
from specmodels.qwen3 import Qwen3
from specrun.assemble import load_engine
from spectiny.document import TRAINED_DOMAINS
from spectrain.checkpoints import load_run
from spectrain.data import PackedRows, Shard, concatenate, read_shard, select, shard_hash
from spectrain.heads import Pair, expected_lengths, fit_local, head_objective, numbered, save_pair
from spectrain.loop import Loop, LoopConfig
from spectrain.objectives.dspark import CROSS_ENTROPY
from spectrain.optim import GroupedOptimiser, MixedOptimiser, OptimiserConfig, Schedule
from spectrain.recipes import Recipe, recipe
from spectrain.record import write_record

SHAPE = HeadShape(
    hidden_size=DRAFTER.hidden_size,
    vocab_size=VOCABULARY,
    block_size=DRAFTER.block_size,
    shifted=DRAFTER.shifted,
    norm_eps=DRAFTER.norm_eps,
)
RANK = 64  # of every low-rank table: a third of the width, and a fraction of the file
CONV = ConvConfig(taps=2, group=16)

BACKBONE = OptimiserConfig(matrix_lr=0.005, other_lr=8e-4, matrix_decay=0.02)
# heads are fresh and have a few hundred steps to go
HEAD = OptimiserConfig(matrix_lr=0.04, other_lr=0.012)
HEADS_OWN = {
    # an offset of the hidden rows moves every logit, so it takes smaller steps than a table of scores
    "dblast": OptimiserConfig(matrix_lr=0.005, other_lr=1e-3),
    "lilicorr": OptimiserConfig(matrix_lr=0.02, other_lr=6e-3),
}
TEXT_STEPS = 3  # times as many steps for what sees text alone: they cost a third
WATCHED = 32  # held-out responses of each domain that are measured
FUSED = 3_000  # slots that the weights of a local model are fitted on

HEADS: dict[str, Callable[[], nn.Module]] = {
    "dflash": NoCorrector,
    "dpace": NoCorrector,
    "domino": lambda: Domino(
        DominoConfig(
            hidden_size=SHAPE.hidden_size,
            vocab_size=VOCABULARY,
            gru_size=192,
            rank=RANK,
            plain_slots=1,
            shifted=SHAPE.shifted,
        )
    ),
    "dspark": lambda: DSpark(
        DSparkConfig(
            hidden_size=SHAPE.hidden_size,
            vocab_size=VOCABULARY,
            rank=RANK,
            kind="vanilla",
            confidence="markov",
            shifted=SHAPE.shifted,
        )
    ),
    "xpress": lambda: XPress(XPressConfig(shape=SHAPE, rank=RANK, mlp_width=2 * RANK, passes=6)),
    "lilicorr": lambda: LiLiCorr(
        LiLiCorrConfig(
            shape=SHAPE,
            top_k=8,
            width=96,
            factor=96,
            num_layers=2,
            num_heads=4,
            mlp_ratio=2.0,
            vector_eps=1e-4,
            logit_scale=8.0,
        )
    ),
    "dflash2": lambda: DFlash2(DFlash2Config(shape=SHAPE, rank=RANK, top_k=16)),
    "dels": lambda: DeLS(
        DeLSConfig(
            hidden_size=SHAPE.hidden_size,
            vocab_size=VOCABULARY,
            kind="rnn",
            tables="low_rank",
            gru_size=192,
            rank=RANK,
            activation="identity",
            plain_slots=1,
            alpha=(0.3,),
            beta=(0.3,),
            smoothing=1.0,
            shifted=SHAPE.shifted,
        )
    ),
    "dblast": lambda: Dblast(
        DblastConfig(hidden_size=SHAPE.hidden_size, categories=4, rank=None, drafting="soft", temperature=1.0)
    ),
}
CORRECTOR = {"dflash": "none", "dpace": "none"}
"""Names of the correctors where they are not those of the recipes."""
SHIPPED = [name for name in HEADS if name != "dpace"]


class Setting:
    """What all runs share."""

    def __init__(self, options: argparse.Namespace) -> None:
        parts = [usable(BUILD / name) for name in options.data]
        self.train = concatenate([shard for shard, _ in parts])
        self.temperature_D = torch.from_numpy(np.concatenate([temperatures for _, temperatures in parts]))
        valid = read_shard(BUILD / options.data[0], "valid")
        self.valid = select(valid, np.flatnonzero(valid.lengths <= ROW))
        self.rows = PackedRows(self.train, batch=options.rows, row=ROW, seed=SEED + 1)
        self.watch = watched(self.valid, options.watched)
        self.target: Qwen3 = load_target(options.target, dtype=torch.float32).requires_grad_(
            requires_grad=False
        )
        self.drafter: Path = BUILD / options.drafter / "last.pt"
        self.folder: Path = BUILD / options.name
        self.anchors, self.gamma, self.compiled = options.anchors, options.gamma, not options.eager
        self.target_folder: Path = options.target
        self.cross_entropy: float = options.cross_entropy
        self._before: dict[bool, dict[str, float]] = {}
        self.out: Path = options.out

    def pair(self, name: str) -> Pair:
        """The trained drafter and a fresh head; what learns from text alone is put on the control's drafter."""
        config = replace(DRAFTER, conv=CONV) if name == "dflash2" else DRAFTER
        drafter = DFlash(config)
        if recipe(name).backbone:
            parameters = load_run(self.drafter).parameters
        else:
            control = load_run(self.folder / "dflash" / "last.pt").parameters
            parameters = {
                key.removeprefix("drafter."): value
                for key, value in control.items()
                if key.startswith("drafter.")
            }
        missing = drafter.load_state_dict(parameters, strict=False).missing_keys
        assert all("_conv." in key for key in missing), missing
        for module in drafter.modules():
            if isinstance(module, BlockConv):
                module.set_identity()
        head: Any = HEADS[name]()
        if hasattr(head, "reset"):
            head.reset(torch.Generator().manual_seed(SEED))
        if isinstance(head, DeLS):
            head.observe(response_tokens(self.train))
        return Pair(drafter, head)

    def objective(self, name: str, pair: Pair, steps: int) -> Any:
        """The objective of a run of so many steps."""
        return head_objective(
            self.target,
            pair,
            recipe(name),
            steps=steps,
            anchors=self.anchors,
            gamma=self.gamma,
            temperature_D=self.temperature_D,
            cross_entropy=self.cross_entropy,
            compiled=self.compiled,
        )

    def before(self, rule: Recipe, pair: Pair) -> dict[str, float]:
        """Expected tokens of a round before any training: fresh heads correct nothing, so all of them start alike."""
        if rule.backbone not in self._before:
            self._before[rule.backbone] = self.lengths(pair)
        return self._before[rule.backbone]

    def lengths(self, pair: Pair) -> dict[str, float]:
        """Expected tokens of a round on held-out text, by domain."""
        head: Any = pair.head
        return expected_lengths(self.target, pair.drafter, head, self.watch, TRAINED_DOMAINS, row=ROW)


def response_tokens(shard: Shard) -> Tensor:
    """All tokens of a shard's responses, one after the other."""
    parts = [shard.document(i)[int(shard.prompt_lengths[i]) :] for i in range(len(shard))]
    return torch.from_numpy(np.concatenate(parts).astype(np.int64))


def seconds_per_step(setting: Setting, name: str) -> float:
    """Processor time of one forward and backward pass; the second one, as the first is slower."""
    pair = setting.pair(name) if recipe(name).backbone else setting.pair("dflash")
    if not recipe(name).backbone:
        pair.head = HEADS[name]()
        pair.head.reset(torch.Generator().manual_seed(SEED))
    objective, batch = setting.objective(name, pair, 2), numbered(setting.rows.batch)
    elapsed = 0.0
    for number in range(2):
        started = time.process_time()
        objective(batch(number), torch.Generator().manual_seed(number)).loss.backward()
        elapsed = time.process_time() - started
    return elapsed * (1 if recipe(name).backbone else TEXT_STEPS)


def fuse(setting: Setting, pair: Pair) -> None:
    """Set how much of a local model is mixed in."""
    head: Any = pair.head
    batches = [setting.rows.batch(number) for number in range(4)]
    alpha, beta = fit_local(
        setting.target, pair.drafter, head, batches, anchors=setting.anchors, limit=FUSED, seed=SEED
    )
    head.config = replace(head.config, alpha=(round(alpha, 4),), beta=(round(beta, 4),))


def train(setting: Setting, name: str, steps: int, *, resume: bool) -> None:
    """Train one head, export it, load what was exported, and write the record."""
    rule, corrector = recipe(name), CORRECTOR.get(name, name)
    pair, folder = setting.pair(name), setting.folder / name
    head_config = HEADS_OWN.get(name, HEAD)
    before = setting.before(rule, pair)
    parts = [MixedOptimiser([pair.drafter], BACKBONE)] if rule.backbone else []
    if any(True for _ in pair.head.parameters()):
        parts.append(MixedOptimiser([pair.head], head_config, table_rows=VOCABULARY))
    run_steps = steps if rule.backbone else steps * TEXT_STEPS
    schedule = Schedule(steps=run_steps, warmup=min(10, run_steps - 1), decay=0.6)
    after: dict[str, float] = {}

    def evaluate() -> dict[str, float]:
        after.clear()
        after.update(setting.lengths(pair))
        return after

    started = time.perf_counter()
    with tqdm(total=run_steps, desc=name, mininterval=10.0) as bar:

        def show(step: int, values: Mapping[str, float]) -> None:
            bar.update(step - bar.n)
            if values:
                bar.set_postfix({key: f"{value:.3f}" for key, value in values.items()}, refresh=False)

        Loop(
            model=pair,
            optimiser=GroupedOptimiser(parts),
            schedule=schedule,
            config=LoopConfig(
                seed=SEED,
                autocast=torch.bfloat16,
                evaluate_every=max(1, run_steps // 2) if rule.backbone else 0,
                checkpoint_every=50,
            ),
            folder=folder,
            batch=numbered(setting.rows.batch),
            objective=setting.objective(name, pair, run_steps),
            evaluate=evaluate,
            progress=show,
        ).run(resume=resume)
    seconds = time.perf_counter() - started
    fused = {}
    if isinstance(pair.head, DeLS):
        fuse(setting, pair)
        fused = {"alpha": pair.head.config.alpha, "beta": pair.head.config.beta}
    if not after:
        evaluate()
    print(name, "before", {k: round(v, 3) for k, v in before.items()})
    print(name, "after ", {k: round(v, 3) for k, v in after.items()}, f"{seconds:.0f} s", fused)
    out = folder / "export" if name == "dpace" else setting.out / f"qwen3-tiny-{name}"
    out.mkdir(parents=True, exist_ok=True)
    save_pair(pair.drafter, corrector, pair.head, TARGET, out, dtype=torch.bfloat16)
    add_ids(out)
    # whatever drafter or head does not claim is refused here
    load_engine(setting.target_folder, "dflash" if corrector == "none" else corrector, draft=out)
    records = RECORDS if setting.out == DATA else setting.out / "records"
    write_record(
        (folder if name == "dpace" else records) / f"head-{name}.json",
        seed=SEED,
        data={"train": shard_hash(setting.train), "valid": shard_hash(setting.valid)},
        sources=SOURCES,
        recipe=name,
        head=asdict(pair.head.config) if hasattr(pair.head, "config") else None,
        parameters=sum(parameter.numel() for parameter in pair.head.parameters()),
        drafter=asdict(pair.drafter.config),
        optimisers={"backbone": asdict(BACKBONE) if rule.backbone else None, "head": asdict(head_config)},
        schedule=asdict(schedule),
        rows=setting.rows.batch_rows,
        row_tokens=ROW,
        anchors=setting.anchors,
        gamma=setting.gamma,
        autocast="bfloat16",
        cross_entropy=setting.cross_entropy if name in {"dspark", "xpress"} else None,
        seconds=round(seconds, 1),
        last=last_line(folder / "log.jsonl"),
        fused=fused,
        expected_length={"before": before, "after": after},
    )


def last_line(log: Path) -> dict[str, float]:
    """The last values of a log that hold a loss."""
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if "loss" in row][-1]


def main() -> None:
    """Train; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*HEADS, "all"], help="all trains what is shipped")
    parser.add_argument("--steps", type=int, default=300, help="the same for every method")
    parser.add_argument(
        "--minutes", type=float, help="instead of --steps: mean time of a method, measured first"
    )
    parser.add_argument("--rows", type=int, default=4, help="packed rows of a batch")
    parser.add_argument("--anchors", type=int, default=16, help="blocks of a row")
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--gamma", type=float, default=7.0)
    parser.add_argument(
        "--cross-entropy",
        type=float,
        default=CROSS_ENTROPY,
        help="its share in the losses of dspark and xpress; a distance to the target has the rest",
    )
    parser.add_argument("--watched", type=int, default=WATCHED, help="held-out responses of a domain")
    parser.add_argument("--target", type=Path, default=TARGET_FOLDER)
    parser.add_argument("--data", nargs="+", default=["rollouts"], help="folders under build/tiny/")
    parser.add_argument("--drafter", default="drafter", help="folder under build/tiny/ with the warm start")
    parser.add_argument("--name", default="heads", help="folder under build/tiny/")
    parser.add_argument("--out", type=Path, default=DATA, help="where the folders go")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    setting = Setting(options)
    assert setting.target.config.vocab_size == VOCABULARY > MASK
    names = SHIPPED if "all" in options.names else options.names
    steps = options.steps
    if options.minutes is not None:
        times = {name: seconds_per_step(setting, name) for name in names}
        steps = int(options.minutes * 60 * len(names) / sum(times.values()))
        print("seconds per step", {name: round(value, 2) for name, value in times.items()}, "steps", steps)
    for name in names:
        train(setting, name, steps, resume=options.resume)


if __name__ == "__main__":
    main()
