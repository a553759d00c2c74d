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
from torch import Tensor

import speccorrect
import specmodels
import spectrain
from speccorrect.correctors.none import NoCorrector
from specmodels.qwen3 import Qwen3
from specrun import Engine, load_engine
from spectrain.checkpoints import load_run
from spectrain.data import PackedRows, Shard, shard_hash
from spectrain.heads import Pair, expected_lengths, fit_local, head_objective, numbered, save_pair
from spectrain.loop import Loop, LoopConfig
from spectrain.optim import GroupedOptimiser, MixedOptimiser
from spectrain.recipes import recipe as objective_named
from spectrain.record import write_record
from spectrain.runs.corpus import Corpus, Prompt, answer_prompts, read_corpus, read_prompts
from spectrain.runs.models import load_models
from spectrain.runs.recipe import RunRecipe, parse_recipe
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
        _check_folder(folder, text, resume=resume)
    workers.wait()
    engine, pair = load_models(chosen, device)
    target = engine.parts.target
    corpus = _corpus(chosen, text, engine, folder, prompts, report, workers)
    trained: Any = pair.head
    if hasattr(trained, "observe"):
        trained.observe(_responses(corpus.train).to(device))
    if chosen.run.shard_target:
        shard_target(target, workers)

    def lengths(head: Any = trained) -> dict[str, float]:
        return expected_lengths(target, pair.drafter, head, corpus.valid, corpus.domains, row=chosen.data.row)

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
        save_pair(
            pair.drafter, chosen.corrector, pair.head, target.config, folder / "model", dtype=torch.bfloat16
        )
        # whatever drafter or head does not claim is refused here
        load_engine(chosen.target.model, _method(chosen), draft=folder / "model")
    return outcome


def _record(
    chosen: RunRecipe, pair: Pair, corpus: Corpus, path: Path, *, device: str, processes: int
) -> None:
    data = {"train": shard_hash(corpus.train), "valid": shard_hash(corpus.valid)}
    if path.is_file() and json.loads(path.read_text(encoding="utf-8"))["data"] != data:
        raise ValueError(
            f"resume: the data are not those of {path}; give the same --data, or another --output"
        )
    write_record(
        path,
        seed=chosen.run.seed,
        data=data,
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


def _check_folder(folder: Path, text: str, *, resume: bool) -> None:
    """Refuse a folder that holds another run, or none to go on with."""
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


def _method(chosen: RunRecipe) -> str:
    return "dflash" if chosen.corrector == "none" else chosen.corrector


def _corpus(
    chosen: RunRecipe,
    text: str,
    engine: Engine,
    folder: Path,
    prompts: Callable[[str], list[Prompt] | None],
    report: Report,
    workers: Workers,
) -> Corpus:
    """The documents of a run, made first if need be. Only now is the folder the recipe's: what was wrong has been said."""
    part, vocab_size = chosen.data, engine.parts.target.config.vocab_size
    place = folder / "data"
    if part.shards is not None:
        place = Path(part.shards)
        read_corpus(place, part, vocab_size)
    asked = None
    if part.prompts is not None and not (place / "domains.json").is_file():
        found = prompts(part.prompts)
        asked = read_prompts(Path(part.prompts)) if found is None else found
    if workers.first:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "recipe.toml").write_text(text, encoding="utf-8")
        if asked is not None:
            answer_prompts(engine, asked, part, place, lambda done, total: report("answers", done, total, {}))
    workers.wait()
    return read_corpus(place, part, vocab_size)


def _responses(shard: Shard) -> Tensor:
    """All tokens of a shard's responses, one after the other."""
    parts = [shard.document(i)[int(shard.prompt_lengths[i]) :] for i in range(len(shard))]
    return torch.from_numpy(np.concatenate(parts).astype(np.int64))


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
