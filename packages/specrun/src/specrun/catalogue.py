"""What can be run by name: known and embedded models with the drafters of each, and which of them are on this disk."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from specmodels import KNOWN_MODELS, HubState, cached, hub_state, known_model
from specrun.embedded import embedded_models
from specrun.methods import Method

_PLAIN_FAMILY = "dflash"  # the known drafters that carry no head


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A set of weights that goes by a name."""

    source: str  # what --model or --draft takes: owner/name@revision, or a name of an embedded model
    folder: Path | None  # where it is, if all of it is on this disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A model of the catalogue."""

    name: str
    weights: Offer
    parameters: str
    gigabytes: float  # download of the target
    licence: str
    gated: bool  # needs an account that accepted the licence
    embedded: bool
    diffusion: bool  # denoises blocks
    drafters: dict[str, Offer] = field(default_factory=dict)  # by corrector


def catalogue() -> list[Listed]:
    """All models that have a name. Looks at this disk, never at the network."""
    embedded = embedded_models()
    listed = []
    for known in KNOWN_MODELS.values():
        if known.embedded:
            inside = embedded.get(known.name)
            folder = None if inside is None else inside.target
            weights = Offer(source=known.name, folder=_whole(folder))
            folders = {} if inside is None else inside.drafters
            drafters = {
                corrector: Offer(source=embedded_draft(known.name, corrector), folder=_whole(folder))
                for corrector, folder in folders.items()
            }
        else:
            weights = _hub(known.repo, known.revision)
            drafters = {
                "none" if family == _PLAIN_FAMILY else family: _hub(drafter.repo, drafter.revision)
                for family, drafter in known.drafters.items()
            }
        listed.append(
            Listed(
                name=known.name,
                weights=weights,
                parameters=known.parameters,
                gigabytes=known.gigabytes,
                licence=known.licence,
                gated=known.gated,
                embedded=known.embedded,
                diffusion=known.diffusion,
                drafters=drafters,
            )
        )
    return listed


def embedded_draft(model: str, corrector: str) -> str:
    """The name by which a drafter of an embedded model can be asked for."""
    return f"{model}-{corrector}"


def default_draft(model: str, method: Method) -> str | None:
    """The drafter that a method gets where none is named; None for plain decoding and for unknown models."""
    if method.corrector is None:
        return None
    if model in KNOWN_MODELS and not KNOWN_MODELS[model].embedded:
        family = _PLAIN_FAMILY if method.corrector == "none" else method.corrector
        drafter = KNOWN_MODELS[model].drafters.get(family)
        return None if drafter is None else f"{drafter.repo}@{drafter.revision}"
    return embedded_draft(model, method.corrector) if model in embedded_models() else None


def offer(source: str) -> Offer:
    """Whatever --model or --draft takes, and where it is on this disk."""
    for listed in catalogue():
        named = {drafter.source: drafter for drafter in listed.drafters.values()} | {
            listed.name: listed.weights
        }
        if source in named:
            return named[source]
    if Path(source).expanduser().is_dir():
        return Offer(source=source, folder=_whole(Path(source).expanduser()))
    if "/" not in source:
        known_model(source)
    repo, _, revision = source.partition("@")
    return _hub(repo, revision or "main")


def downloads() -> HubState:
    """How the hub is set up on this machine."""
    return hub_state()


def _hub(repo: str, revision: str) -> Offer:
    return Offer(source=f"{repo}@{revision}", folder=_whole(cached(repo, revision)))


def _whole(folder: Path | None) -> Path | None:
    """The folder, unless weights are missing in it: a download may have been broken off."""
    if folder is None or not (folder / "config.json").is_file():
        return None
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    else:
        shards = {"model.safetensors"}
    return folder if all((folder / shard).is_file() for shard in shards) else None
