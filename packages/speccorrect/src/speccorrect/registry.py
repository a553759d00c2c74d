"""The correctors that exist: one file of the `correctors` folder each, found by listing it.

A file named `<name>.py` defines `SPEC`, a `CorrectorSpec` whose name is the stem. There is no second list.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from speccorrect import correctors
from speccorrect.source import HeadShape, HeadSource


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectorSpec:
    """What the rest of the world needs to know of a corrector."""

    name: str  # the file's stem, and the method's name on the command line
    title: str  # as its authors write it
    paper: str  # where it comes from
    summary: str  # one line for people who choose a method
    claims: Callable[[Mapping[str, Any], frozenset[str]], bool]  # (config, tensor names) -> is it this head?
    load: Callable[[HeadSource], nn.Module]  # pops its share of a checkpoint
    save: Callable[
        [nn.Module], tuple[dict[str, Any], dict[str, Tensor]]
    ]  # config keys and tensors, public names
    new: Callable[[HeadShape], nn.Module]  # untrained, at its paper's sizes where the target's allow


@cache
def corrector_specs() -> dict[str, CorrectorSpec]:
    """All correctors by name, sorted."""
    specs: dict[str, CorrectorSpec] = {}
    for entry in sorted(pkgutil.iter_modules(correctors.__path__), key=lambda entry: entry.name):
        module = importlib.import_module(f"{correctors.__name__}.{entry.name}")
        spec = getattr(module, "SPEC", None)
        assert isinstance(spec, CorrectorSpec), f"correctors/{entry.name}.py defines no SPEC"
        assert spec.name == entry.name, f"correctors/{entry.name}.py names its SPEC {spec.name!r}"
        specs[spec.name] = spec
    return specs


def corrector_spec(name: str) -> CorrectorSpec:
    """The corrector of that name; an unknown one is a ValueError that lists them all."""
    known = corrector_specs()
    if name not in known:
        raise ValueError(f"corrector: got {name!r}, expected one of {', '.join(known)}")
    return known[name]


def claim_head(source: HeadSource) -> tuple[str, nn.Module]:
    """Find the one head that a checkpoint carries and load it; the plain drafter carries none."""
    names = frozenset(source.tensors)
    claiming = [spec for spec in corrector_specs().values() if spec.claims(source.config, names)]
    if len(claiming) > 1:
        raise ValueError(f"head: {' and '.join(spec.name for spec in claiming)} both claim this checkpoint")
    spec = claiming[0] if claiming else corrector_spec("none")
    # built without memory: a size that a config names is believed once a tensor of that size is there
    with torch.device("meta"):
        return spec.name, spec.load(source)
