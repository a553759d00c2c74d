"""Train the embedded block-diffusion pair on word problems with small numbers.

Run from the root of the repository: `python tools/train_tiny/llada.py mini`, then `flash`. The documents are made from a
seed; log, record and checkpoints go into build/tiny/llada-.../, and export.py makes the shipped files from them. Like the
published models, the pair begins as an autoregressive one: two layers of the embedded target are taken over by the smaller
model and get experts that say nothing yet. The larger one grows from the finished smaller one by the other two layers, which
say nothing at first either. A run that was stopped goes on with --resume.
"""

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from family import BUILD, IM_END, LLADA_FLASH, LLADA_MINI, SEED, SOURCES, TARGET_FOLDER
from tqdm import tqdm

from specmodels import load_target
from specmodels.llada2 import BLOCK, Llada2, Llada2Config
from specmodels.qwen3 import Qwen3
from specrun.tokens import Tokenizer
from spectiny.corpus.small import small_problems
from spectrain.balance import LoadBalance
from spectrain.checkpoints import load_run
from spectrain.data import Shard, read_shard, shard_hash, write_shard
from spectrain.denoising import BlockStages, DenoisingBatch, DenoisingRows, Noise, denoising_objective
from spectrain.loop import Loop, LoopConfig, Loss
from spectrain.optim import MixedOptimiser, OptimiserConfig, Schedule
from spectrain.record import write_record

MODELS = {"mini": LLADA_MINI, "flash": LLADA_FLASH}
RUNS = {
    "mini": (
        OptimiserConfig(matrix_lr=0.015, other_lr=3e-3, matrix_decay=0.02),
        Schedule(steps=1_000, warmup=20),
    ),
    "flash": (
        OptimiserConfig(matrix_lr=0.008, other_lr=1.5e-3, matrix_decay=0.02),
        Schedule(steps=90, warmup=5, decay=0.9),
    ),
}
TAKEN = (
    0,
    3,
)  # layers of the target that the smaller model begins with; in the larger one they have the same places
TRAINED, WATCHED = 20_000, 48  # documents
DOCUMENTS = 16  # of a batch
WHOLE = 1_024  # a block that holds any document
# blocks grow, then whole documents are mixed in: refinement looks at all of an answer at once
MIXED = (np.inf, {BLOCK: 0.7, WHOLE: 0.3})
STAGES = {
    "mini": BlockStages(((150, {1: 1}), (300, {4: 1}), (550, {BLOCK: 1}), MIXED)),
    "flash": BlockStages((MIXED,)),
}
NOISE = Noise(own_share=0.5)
BALANCE = 1e-3  # step of a router's bias


def corpus(folder: Path) -> tuple[Shard, Shard]:
    """The documents as shards, made once."""
    if not (folder / "valid.tokens.npy").is_file():
        tokenizer = Tokenizer(TARGET_FOLDER)
        found = list(small_problems(SEED, TRAINED + WATCHED))
        for split, documents in (("train", found[WATCHED:]), ("valid", found[:WATCHED])):
            prompts = [
                tokenizer.encode(
                    f"<|im_start|>user\n{one.prompt}<|im_end|>\n<|im_start|>assistant\n", special=False
                )
                for one in documents
            ]
            answers = [tokenizer.encode(f"{one.response}<|im_end|>", special=False) for one in documents]
            lengths = [len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True)]
            shard = Shard(
                tokens=np.concatenate(
                    [np.array(p + a, dtype=np.uint16) for p, a in zip(prompts, answers, strict=True)]
                ),
                offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
                prompt_lengths=np.array([len(prompt) for prompt in prompts], dtype=np.int32),
                domains=np.zeros(len(documents), dtype=np.uint8),
            )
            write_shard(folder, split, shard)
    return read_shard(folder, "train"), read_shard(folder, "valid")


@torch.no_grad()
def grown(target: Qwen3, config: Llada2Config, layers: tuple[int, ...]) -> Llada2:
    """A model that computes what those layers of the target compute: the shared block is their feed-forward block."""
    model = Llada2(config)
    generator = torch.Generator().manual_seed(SEED)
    theirs = target.state_dict()
    taken = {
        "embedding": theirs["embedding"],
        "norm.weight": theirs["norm.weight"],
        "head.weight": target.head_VD,
    }
    for ours, layer in enumerate(layers):
        for name, tensor in theirs.items():
            if name.startswith(f"layers.{layer}."):
                part = name.removeprefix(f"layers.{layer}.")
                if ours >= config.dense_layers and part.startswith("mlp."):
                    part = part.replace("mlp.", "mlp.shared.")
                taken[f"layers.{ours}.{part}"] = tensor
    for name, parameter in model.named_parameters():
        if name in taken:
            parameter.copy_(taken.pop(name))
        elif name.endswith(("router.bias", "down_EDU")):
            parameter.zero_()
        else:
            parameter.normal_(0.0, 0.02, generator=generator)
    assert not taken, sorted(taken)
    model.rope.fill()
    return model


@torch.no_grad()
def deepened(target: Qwen3, mini: Path, config: Llada2Config) -> Llada2:
    """A deeper model that computes what the smaller one of a checkpoint computes: its other layers add nothing."""
    model = grown(target, config, tuple(range(config.num_layers)))
    parameters = dict(model.named_parameters())
    for name, tensor in load_run(mini).parameters.items():
        for ours, layer in enumerate(TAKEN):
            name = name.replace(f"layers.{ours}.", f"layers.at-{layer}.")
        parameters[name.replace("at-", "")].copy_(tensor)
    for layer in set(range(config.num_layers)) - set(TAKEN):
        for part in ("attention.output.weight", "mlp.shared.down.weight", "mlp.experts.down_EDU"):
            parameters[f"layers.{layer}.{part}"].zero_()
    return model


def main() -> None:
    """Train; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=MODELS)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()

    train, valid = corpus(BUILD / "small-problems")
    config, stages = MODELS[options.what], STAGES[options.what]
    target = load_target(TARGET_FOLDER, dtype=torch.float32)
    if options.what == "mini":
        model = grown(target, config, TAKEN)
    else:
        model = deepened(target, BUILD / "llada-mini" / "last.pt", config)
    model.train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(requires_grad=not name.endswith("router.bias"))
    rows, watch = (
        DenoisingRows(shard, batch=DOCUMENTS, seed=SEED, fill=BLOCK, end_id=IM_END, stages=stages)
        for shard in (train, valid)
    )
    watched = watch.lay_out(list(range(len(valid))), BLOCK)
    denoise, balance = denoising_objective(model, NOISE), LoadBalance(model, rate=BALANCE)

    def objective(batch: DenoisingBatch, generator: torch.Generator) -> Loss:
        loss, metrics = denoise(batch, generator)
        return Loss(loss, {**metrics, "load": balance.update()})

    @torch.no_grad()
    def evaluate() -> Mapping[str, float]:
        model.eval()
        found = denoise(watched, torch.Generator().manual_seed(SEED))
        model.train()
        return {"valid": float(found.loss), **{f"valid_{k}": float(v) for k, v in found.metrics.items()}}

    optimiser, schedule = RUNS[options.what]
    folder = BUILD / f"llada-{options.what}"
    write_record(
        folder / "record.json",
        seed=SEED,
        data={"train": shard_hash(train), "valid": shard_hash(valid)},
        sources=SOURCES,
        model=asdict(config),
        layers=TAKEN,
        optimiser=asdict(optimiser),
        schedule=asdict(schedule),
        noise=asdict(NOISE),
        stages=asdict(stages),
        documents=DOCUMENTS,
        balance=BALANCE,
        autocast="bfloat16",
    )
    with tqdm(total=schedule.steps, mininterval=10.0) as bar:

        def show(step: int, values: Mapping[str, float]) -> None:
            bar.update(step - bar.n)
            if values:
                bar.set_postfix({name: f"{value:.3f}" for name, value in values.items()}, refresh=False)

        Loop(
            model=model,
            optimiser=MixedOptimiser([model], optimiser, table_rows=config.vocab_size),
            schedule=schedule,
            config=LoopConfig(
                seed=SEED,
                autocast=torch.bfloat16,
                evaluate_every=100,
                checkpoint_every=10,
                milestones=(schedule.decay_start,),
            ),
            folder=folder,
            batch=rows.batch,
            objective=objective,
            evaluate=evaluate,
            progress=show,
        ).run(resume=options.resume)


if __name__ == "__main__":
    main()
