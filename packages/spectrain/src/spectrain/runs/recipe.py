"""A recipe file in TOML goes in, a frozen `RunRecipe` comes out: target, drafter, head, data, objective, schedule.

Everything that a run computes with stands in its recipe; what a machine decides, such as the device, does not. The
objective names the head.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from speccorrect.registry import corrector_specs
from specmodels.dflash import ConvConfig
from spectrain.objectives.dspark import CROSS_ENTROPY
from spectrain.optim import OptimiserConfig, Schedule
from spectrain.recipes import recipe
from spectrain.runs.tables import read_table

GAMMA = 7.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPart:
    """The model whose answers are learnt; it stays as it is."""

    model: str  # known name, folder or owner/name[@revision]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDrafter:
    """A drafter from random weights; its width and heads are the target's."""

    layers: int  # at least 1
    block_size: int  # rows of a block, anchor included; at least 2
    target_layers: tuple[int, ...]  # 0-based layers of the target whose outputs it reads
    mask_token_id: int  # an id that no text holds
    intermediate_size: int | None = None  # None is the target's


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterPart:
    """The drafter that is trained, or that a head is trained for."""

    start: str | None = None  # name, folder or owner/name; None is the known drafter of the target
    new: NewDrafter | None = None  # instead of `start`
    conv: ConvConfig | None = None  # gives a drafter without convolutions those of DFlash 2
    learns: bool = True  # false trains the head alone

    def __post_init__(self) -> None:
        if self.start is not None and self.new is not None:
            raise ValueError("got both start and new, expected one of them; remove the other")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPart:
    """Texts to learn from: answers that the target gives to prompts, or shards that hold them already."""

    prompts: str | None = None  # JSON lines with keys prompt and, if wanted, domain; "tiny" generates some
    shards: str | None = None  # folder with the splits train and valid; instead of `prompts`
    documents: int = 1_000  # answers to train on, at most
    held_out: int = 96  # greedy answers to measure on, at most
    temperatures: tuple[float, ...] = (0.0, 1.0)  # of the training answers, in turn
    top_k: int = 0  # 0 keeps all
    top_p: float = 1.0  # in (0, 1]
    thinking: bool = False  # as it will be served
    max_new_tokens: int = 160  # of an answer
    row: int = 320  # tokens of a packed row; longer documents are left out
    rows: int = 4  # rows of a batch

    def __post_init__(self) -> None:
        if (self.prompts is None) == (self.shards is None):
            count = "neither" if self.prompts is None else "both"
            raise ValueError(f"got {count} of prompts and shards, expected one of them; say where texts are")
        if self.documents < 1 or self.held_out < 1 or not self.temperatures:
            raise ValueError(
                "got nothing to train or to measure on, expected documents, held_out, temperatures"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectivePart:
    """What is minimised."""

    name: str  # one of `spectrain.recipes`
    anchors: int = 16  # blocks of a row, drawn anew for every batch
    gamma: float | None = None  # slots over which a draft's weight falls by e; 7 where it falls
    cross_entropy: float | None = None  # its share beside a distance to the target; 0.1 where there is one

    def __post_init__(self) -> None:
        rule = recipe(self.name)
        if self.anchors < 1:
            raise ValueError(f"anchors: got {self.anchors}, expected at least 1")
        for key, value, read in (
            ("gamma", self.gamma, rule.decays),
            ("cross_entropy", self.cross_entropy, rule.mixes),
        ):
            if value is not None and not read:
                raise ValueError(f"{key}: has no effect on the objective {self.name}; remove it")

    @property
    def chosen_gamma(self) -> float:
        return GAMMA if self.gamma is None else self.gamma

    @property
    def chosen_cross_entropy(self) -> float:
        return CROSS_ENTROPY if self.cross_entropy is None else self.cross_entropy


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserPart:
    """Learning rates of both parts."""

    drafter: OptimiserConfig | None = None  # needed where the drafter learns
    head: OptimiserConfig | None = None  # needed where there is a head


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """How the loop runs."""

    seed: int = 0
    accumulation: int = 1  # batches of one optimiser step, over all processes
    bfloat16: bool = True  # products in bfloat16; parameters and their updates stay in float32
    average: float | None = None  # decay of a moving average, which is then what is exported
    compiled: bool = False  # costs a minute at the start
    shard_target: bool = False  # spread the target's layers over the processes of torchrun
    evaluate_every: int = 0  # steps; 0 measures before and after only
    checkpoint_every: int = 50  # steps


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecipe:
    """A whole run."""

    title: str  # one line for people who choose
    target: TargetPart
    drafter: DrafterPart = field(default_factory=DrafterPart)
    head: Mapping[str, Any] = field(default_factory=dict)  # sizes of the head, beside its own default ones
    data: DataPart
    objective: ObjectivePart
    optimiser: OptimiserPart
    schedule: Schedule
    run: RunPart = field(default_factory=RunPart)

    def __post_init__(self) -> None:
        learns, trained = self.drafter_learns, self.corrector != "none"
        if not learns and not trained:
            raise ValueError(
                f"drafter.learns: got false, but the objective {self.objective.name} trains no head; choose another"
            )
        if self.head and not trained:
            raise ValueError(f"head: has no effect on the objective {self.objective.name}; remove it")
        for key, config, needed in (
            ("drafter", self.optimiser.drafter, learns),
            ("head", self.optimiser.head, trained),
        ):
            if (config is not None) != needed:
                state = (
                    "no table, expected learning rates" if needed else "a table, but that part is not trained"
                )
                raise ValueError(f"optimiser.{key}: got {state}; {'add' if needed else 'remove'} it")

    @property
    def corrector(self) -> str:
        """The head that the objective trains; "none" for those of the plain drafter."""
        name = self.objective.name
        return name if name in corrector_specs() else "none"

    @property
    def drafter_learns(self) -> bool:
        return self.drafter.learns and recipe(self.objective.name).backbone


def parse_recipe(text: str, where: str) -> RunRecipe:
    """The recipe of a file's text."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: {error}; expected TOML") from error
    return read_table(RunRecipe, table, where)


def shipped_recipes() -> dict[str, str]:
    """The texts of the recipes that come with this package, by name."""
    folder = files("spectrain.runs").joinpath("recipes")
    found = {item.name: item for item in folder.iterdir() if item.name.endswith(".toml")}
    return {name.removesuffix(".toml"): found[name].read_text(encoding="utf-8") for name in sorted(found)}


def recipe_text(source: str) -> tuple[str, str]:
    """Name and text of a recipe: a path that ends in .toml, or the name of one that comes with this package."""
    if source.endswith(".toml"):
        path = Path(source)
        if not path.is_file():
            raise ValueError(f"recipe: got {source}, which is no file; check the path")
        return path.stem, path.read_text(encoding="utf-8")
    shipped = shipped_recipes()
    if source not in shipped:
        raise ValueError(
            f"recipe: got {source!r}, expected a file that ends in .toml or one of {', '.join(shipped)}"
        )
    return source, shipped[source]
