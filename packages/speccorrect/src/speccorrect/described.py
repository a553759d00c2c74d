"""What every corrector says of itself, read from its source: a list of methods should not have to wait for torch."""

import ast
import pkgutil
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path

from speccorrect import correctors


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The plain texts in the `SPEC` of a corrector's file."""

    name: str
    title: str
    paper: str
    summary: str


def described_correctors() -> dict[str, Description]:
    """All correctors by name, sorted. Runs none of their code, so the texts have to stand there as literals."""
    names = sorted(entry.name for entry in pkgutil.iter_modules(correctors.__path__))
    return {name: _description(name) for name in names}


def _description(name: str) -> Description:
    found = find_spec(f"{correctors.__name__}.{name}")
    assert found is not None, f"correctors/{name}.py was listed and is gone"
    assert found.origin is not None, f"correctors/{name}.py has no source"
    wanted = {field.name for field in fields(Description)}
    for node in ast.parse(Path(found.origin).read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="SPEC")], value=ast.Call(keywords=keywords)):
                texts = {keyword.arg: keyword.value for keyword in keywords if keyword.arg in wanted}
                return Description(**{key: ast.literal_eval(value) for key, value in texts.items()})
    raise AssertionError(f"correctors/{name}.py defines no SPEC")
