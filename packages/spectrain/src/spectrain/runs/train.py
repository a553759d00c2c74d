"""A recipe goes in; a folder with trained weights, the log of the run, its record and what it gained comes out.

A folder holds one run: `recipe.toml`, `data/` with the target's answers, `log.jsonl`, `last.pt`, `record.json`,
`result.json`, and `model/`, which the engine loads as a drafter. A run that was stopped goes on from there.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

import speccorrect
import specmodels
import spectrain
from speccorrect.correctors.none import NoCorrector
from speccorrect.registry import corrector_spec
from speccorrect.source import HeadShape
from specmodels.dflash import DFlash, DFlashConfig, LayerKind
from specmodels.dflash.conv import BlockConv
from specmodels.initialise import initialise
from specmodels.qwen3 import Qwen3
from specmodels.qwen3.config import Qwen3Config
from specrun import Engine, load_engine
from spectrain.checkpoints import load_run
from spectrain.data import PackedRows, Shard, shard_hash
from spectrain.heads import Pair, expected_lengths, fit_local, head_objective, numbered, save_pair
from spectrain.loop import Loop, LoopConfig
from spectrain.optim import GroupedOptimiser, MixedOptimiser
from spectrain.recipes import recipe as objective_named
from spectrain.record import write_record
from spectrain.runs.corpus import Corpus, Prompt, answer_prompts, read_corpus, read_prompts
from spectrain.runs.recipe import NewDrafter, RunRecipe, parse_recipe
from spectrain.workers import ALONE, Workers, shard_target

FUSED = 3_000
"""Slots that the weights of a local model are fitted on."""
SOURCES = tuple(Path(str(package.__file__)).parent for package in (speccorrect, specmodels, spectrain))


class Report(Protocol):
    """Who is told how far a stage of the run is; a progress bar, usually."""

    def __call__(self, stage: str, done: int, total: int, values: Mapping[str, float]) -> None:
        """Hear how many steps of a stage are done, and of the values that were logged last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Expected tokens of a round behind random places of held-out answers, free-running, by domain and over all."""

    before: Mapping[str, float]
    after: Mapping[str, float]


def train(
    text: str,
    where: str,
    folder: Path,
    *,
    prompts: Callable[[str], list[Prompt] | None],
    report: Report,
    shards: Path | None = None,
    resume: bool = False,
    device: str = "cpu",
    workers: Workers = ALONE,
) -> Outcome:
    """Run the recipe in `text`; `where` names it in messages.

    `prompts` knows the named sets of prompts and returns None for any other name, which is then a file. `shards` stands
    in for the recipe's data.
    """
    started = time.perf_counter()
    chosen = parse_recipe(text, where)
    if shards is not None:
        chosen = replace(chosen, data=replace(chosen.data, prompts=None, shards=str(shards)))
    if workers.first:
        _claim(folder, text, resume=resume)
    workers.wait()
    engine, drafter = _models(chosen, device)
    target = engine.parts.target.requires_grad_(requires_grad=False)
    if workers.first and chosen.data.prompts is not None:
        _answer(chosen, engine, folder / "data", prompts, report)
    workers.wait()
    data = folder / "data" if chosen.data.shards is None else Path(chosen.data.shards)
    corpus = read_corpus(data, chosen.data, target.config.vocab_size)
    if chosen.run.shard_target:
        shard_target(target, workers)
    pair = Pair(drafter, _head(chosen, drafter, target.config, corpus.train).to(device))
    pair.drafter.requires_grad_(requires_grad=chosen.drafter_learns)

    def lengths(head: Any = pair.head) -> dict[str, float]:
        return expected_lengths(target, drafter, head, corpus.valid, corpus.domains, row=chosen.data.row)

    before = _before(folder / "result.json", lambda: lengths(NoCorrector()), workers)
    if workers.first:
        _record(chosen, pair, corpus, folder / "record.json", device=device, processes=workers.count)
    loop = _loop(chosen, target, pair, corpus, folder, report)
    loop.workers = workers
    loop.evaluate = lengths if chosen.run.evaluate_every else None
    loop.run(resume=resume)
    workers.wait()
    _finish(chosen, target, pair, corpus, folder)
    outcome = Outcome(before=before, after=lengths())
    if workers.first:
        seconds = round(time.perf_counter() - started, 1)
        _write_json(folder / "result.json", {"before": before, "after": outcome.after, "seconds": seconds})
        save_pair(drafter, chosen.corrector, pair.head, target.config, folder / "model", dtype=torch.bfloat16)
        # whatever drafter or head does not claim is refused here
        load_engine(chosen.target.model, _method(chosen), draft=folder / "model")
    return outcome


def _record(
    chosen: RunRecipe, pair: Pair, corpus: Corpus, path: Path, *, device: str, processes: int
) -> None:
    write_record(
        path,
        seed=chosen.run.seed,
        data={"train": shard_hash(corpus.train), "valid": shard_hash(corpus.valid)},
        sources=SOURCES,
        device=device,
        processes=processes,
        recipe=asdict(replace(chosen, head=dict(chosen.head))),
        drafter=asdict(pair.drafter.config),
        parameters={
            name: sum(parameter.numel() for parameter in part.parameters())
            for name, part in (("drafter", pair.drafter), ("head", pair.head))
        },
    )


def _claim(folder: Path, text: str, *, resume: bool) -> None:
    """Make the folder this recipe's, or refuse."""
    path = folder / "recipe.toml"
    if path.is_file():
        if not resume:
            raise ValueError(
                f"output: {folder} holds a run already; give --resume to go on, or another --output"
            )
        if path.read_text(encoding="utf-8") != text:
            raise ValueError(f"resume: {path} is another recipe than the given one; give that file")
    elif resume:
        raise ValueError(f"resume: {folder} holds no run, expected a recipe.toml in it; check --output")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _method(chosen: RunRecipe) -> str:
    return "dflash" if chosen.corrector == "none" else chosen.corrector


def _models(chosen: RunRecipe, device: str) -> tuple[Engine, DFlash]:
    """An engine that decodes the target plainly, and the drafter in its first state; both in fp32."""
    model, part = chosen.target.model, chosen.drafter
    if part.new is not None:
        plain = load_engine(model, "ar", device=device, dtype="float32")
        drafter = DFlash(_new_config(part.new, plain.parts.target.config))
        initialise(drafter, torch.Generator().manual_seed(chosen.run.seed), residual_layers=part.new.layers)
    else:
        drafting = load_engine(model, "dflash", draft=part.start, device=device, dtype="float32")
        loaded = drafting.parts.drafter
        assert loaded is not None, "the method drafts"
        plain, drafter = drafting.plain(), loaded
    if part.conv is not None:
        drafter = _with_conv(drafter, replace(drafter.config, conv=part.conv))
    if drafter.config.draft_vocab_size is not None:
        raise ValueError("drafter.start: has a vocabulary of its own, expected the target's; name another")
    return plain, drafter.to(device)


def _new_config(new: NewDrafter, target: Qwen3Config) -> DFlashConfig:
    if not all(0 <= layer < target.num_layers for layer in new.target_layers) or not new.target_layers:
        raise ValueError(
            f"drafter.new.target_layers: got {list(new.target_layers)}, expected some of 0 to {target.num_layers - 1}"
        )
    if not 0 <= new.mask_token_id < target.vocab_size:
        raise ValueError(
            f"drafter.new.mask_token_id: got {new.mask_token_id}, expected 0 to {target.vocab_size - 1}"
        )
    return DFlashConfig(
        hidden_size=target.hidden_size,
        intermediate_size=new.intermediate_size or target.intermediate_size,
        num_heads=target.num_heads,
        num_kv_heads=target.num_kv_heads,
        head_dim=target.head_dim,
        norm_eps=target.norm_eps,
        rope=target.rope,
        max_positions=target.max_positions,
        layers=(LayerKind(window=None, causal=False),) * new.layers,
        attention_bias=False,
        block_size=new.block_size,
        mask_token_id=new.mask_token_id,
        target_layers=new.target_layers,
        target_hidden_size=target.hidden_size,
        shifted=False,
    )


def _with_conv(drafter: DFlash, config: DFlashConfig) -> DFlash:
    """The same drafter with convolutions that change nothing yet."""
    if drafter.config.conv is not None:
        raise ValueError("drafter.conv: the drafter has convolutions already; remove the table")
    wider = DFlash(config)
    wider.load_state_dict(drafter.state_dict(), strict=False)
    for module in wider.modules():
        if isinstance(module, BlockConv):
            module.set_identity()
    return wider


def _head(chosen: RunRecipe, drafter: DFlash, target: Qwen3Config, train: Shard) -> Any:
    """A fresh head that corrects nothing yet."""
    config = drafter.config
    head: Any = corrector_spec(chosen.corrector).new(
        HeadShape(
            hidden_size=config.hidden_size,
            vocab_size=target.vocab_size,
            block_size=config.block_size,
            shifted=config.shifted,
            norm_eps=config.norm_eps,
        )
    )
    if chosen.head:
        unknown = chosen.head.keys() - set(head.config.__dataclass_fields__)
        if unknown:
            raise ValueError(
                f"head: got {', '.join(sorted(unknown))}, expected some of {', '.join(head.config.__dataclass_fields__)}"
            )
        head = type(head)(replace(head.config, **chosen.head))
        head.reset(torch.Generator().manual_seed(chosen.run.seed))
    if hasattr(head, "observe"):
        parts = [train.document(i)[int(train.prompt_lengths[i]) :] for i in range(len(train))]
        head.observe(torch.from_numpy(np.concatenate(parts).astype(np.int64)))
    return head


def _answer(
    chosen: RunRecipe,
    engine: Engine,
    place: Path,
    prompts: Callable[[str], list[Prompt] | None],
    report: Report,
) -> None:
    """Let the target answer, unless its answers are there."""
    source = chosen.data.prompts
    assert source is not None, "the recipe names shards"
    if not (place / "domains.json").is_file():
        found = prompts(source)
        found = read_prompts(Path(source)) if found is None else found
        answer_prompts(
            engine, found, chosen.data, place, lambda done, total: report("answers", done, total, {})
        )


def _before(path: Path, lengths: Callable[[], dict[str, float]], workers: Workers) -> dict[str, float]:
    """The measure before any training; a run that goes on has it in its result."""
    known = path.is_file()
    workers.wait()
    if known:
        return dict(json.loads(path.read_text(encoding="utf-8"))["before"])
    before = lengths()
    if workers.first:
        _write_json(path, {"before": before})
    return before


def _loop(
    chosen: RunRecipe, target: Qwen3, pair: Pair, corpus: Corpus, folder: Path, report: Report
) -> Loop[Any]:
    optimiser, run, data = chosen.optimiser, chosen.run, chosen.data
    parts = []
    if optimiser.drafter is not None:
        parts.append(MixedOptimiser([pair.drafter], optimiser.drafter))
    if optimiser.head is not None:
        parts.append(MixedOptimiser([pair.head], optimiser.head, table_rows=target.config.vocab_size))
    rows = PackedRows(corpus.train, batch=data.rows, row=data.row, seed=run.seed)
    return Loop(
        model=pair,
        optimiser=GroupedOptimiser(parts),
        schedule=chosen.schedule,
        config=LoopConfig(
            seed=run.seed,
            accumulation=run.accumulation,
            autocast=torch.bfloat16 if run.bfloat16 else None,
            average=run.average,
            evaluate_every=run.evaluate_every,
            checkpoint_every=run.checkpoint_every,
        ),
        folder=folder,
        batch=numbered(rows.batch),
        objective=head_objective(
            target,
            pair,
            objective_named(chosen.objective.name),
            steps=chosen.schedule.steps,
            anchors=chosen.objective.anchors,
            gamma=chosen.objective.chosen_gamma,
            temperature_D=corpus.temperature_D,
            cross_entropy=chosen.objective.chosen_cross_entropy,
            compiled=run.compiled,
            accumulation=run.accumulation,
        ),
        progress=lambda step, values: report("training", step, chosen.schedule.steps, values),
    )


@torch.no_grad()
def _finish(chosen: RunRecipe, target: Qwen3, pair: Pair, corpus: Corpus, folder: Path) -> None:
    """Put in what is not learnt by steps: the moving average, and how much of a local model is mixed in."""
    if chosen.run.average is not None:
        average = load_run(folder / "last.pt").average
        for name, parameter in pair.named_parameters():
            parameter.copy_(average[name])
    head: Any = pair.head
    if hasattr(head, "local_logits"):
        rows = PackedRows(corpus.train, batch=chosen.data.rows, row=chosen.data.row, seed=chosen.run.seed)
        found = fit_local(
            target,
            pair.drafter,
            head,
            [rows.batch(number) for number in range(4)],
            anchors=chosen.objective.anchors,
            limit=FUSED,
            seed=chosen.run.seed,
        )
        head.config = replace(head.config, alpha=(round(found.alpha, 4),), beta=(round(found.beta, 4),))


def _write_json(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
