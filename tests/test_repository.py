"""The repository keeps its own rules: arrows between packages, licences, versions, and text fit for strangers."""

import ast
import importlib.metadata
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SOURCES = {path.name: path for pattern in ("packages/*/src/*", "apps/*/src/*") for path in ROOT.glob(pattern)}
PROJECTS = sorted([*ROOT.glob("packages/*"), *ROOT.glob("apps/*")])

# What a package may import beside the standard library and itself. STRUCTURE.md draws it; nothing else decides it.
ARROWS = {
    "speccorrect": {"torch"},
    "specmodels": {"torch", "numpy", "safetensors", "huggingface_hub", "jinja2", "triton"},
    "specrun": {"torch", "specmodels", "speccorrect", "tokenizers"},
    "spectrain": {"torch", "numpy", "specmodels", "speccorrect", "specrun", "matplotlib"},
    "spectiny": {"tokenizers"},  # to rebuild its tokenizer; its data need nothing
    "specrun_cli": {
        "torch",
        "speccorrect",
        "specmodels",
        "specrun",
        "spectrain",
        "spectiny",
        "tqdm",
        "argcomplete",
        "matplotlib",
        "starlette",
        "uvicorn",
        "gguf",
    },
}
# The one file or folder of a package that may import a library.
GATES = {
    "huggingface_hub": "hub.py",
    "safetensors": "files.py",
    "tokenizers": "tokens.py",
    "triton": "kernels",
}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules(package: str) -> list[Path]:
    return sorted(SOURCES[package].rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Full names of everything that a file imports, wherever in it."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def top(name: str) -> str:
    return name.partition(".")[0]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def project(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def test_every_package_has_its_arrows():
    assert set(SOURCES) == set(ARROWS)


@pytest.mark.parametrize("package", ARROWS)
def test_imports_follow_the_arrows(package):
    allowed = ARROWS[package] | {package} | sys.stdlib_module_names
    wrong = {
        (shown(path), name)
        for path in modules(package)
        for name in imported(path)
        if top(name) not in allowed
    }
    assert not wrong


@pytest.mark.parametrize("folder", PROJECTS, ids=lambda folder: folder.name)
def test_declared_dependencies_follow_the_arrows(folder):
    described = project(folder)
    extras = [line for lines in described.get("optional-dependencies", {}).values() for line in lines]
    names = {Requirement(line).name for line in [*described["dependencies"], *extras]}
    assert names <= ARROWS[described["name"].replace("-", "_")]


@pytest.mark.parametrize("library", GATES)
def test_a_library_has_one_gate(library):
    wrong = [
        shown(path)
        for package in SOURCES
        for path in modules(package)
        if any(top(name) == library for name in imported(path)) and GATES[library] not in path.parts
    ]
    assert not wrong


def test_stages_do_not_know_each_other():
    stages = "specrun.stages"
    wrong = [
        shown(path)
        for path in SOURCES["specrun"].glob("stages/*.py")
        if path.name != "__init__.py" and any(name.startswith(stages) for name in imported(path))
    ]
    assert not wrong


def test_the_engine_compiles_and_captures_in_one_file():
    captures = {
        "torch.compile",
        "torch.cuda.CUDAGraph",
        "torch.cuda.graph",
        "torch.cuda.make_graphed_callables",
    }
    wrong = [
        (shown(path), ast.unparse(node))
        for path in modules("specrun")
        if path.name != "graphs.py"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in captures
    ]
    assert not wrong


@pytest.mark.parametrize("package", [name for name in ARROWS if name != "specrun_cli"])
def test_libraries_neither_print_nor_parse_arguments(package):
    calls = [
        (shown(path), node.lineno)
        for path in modules(package)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    parsers = [shown(path) for path in modules(package) if "argparse" in map(top, imported(path))]
    assert not calls
    assert not parsers


def test_no_file_is_a_drawer():
    drawers = {"utils.py", "util.py", "common.py", "helpers.py", "base.py", "misc.py"}
    assert not [shown(path) for package in SOURCES for path in modules(package) if path.name in drawers]


def test_test_folders_are_no_packages():
    # With an __init__.py, tests/specrun would be imported under the name of the package that it tests.
    assert not [shown(path) for path in (ROOT / "tests").rglob("__init__.py")]


@pytest.mark.parametrize("folder", PROJECTS, ids=lambda folder: folder.name)
def test_a_package_carries_the_licence(folder):
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    try:
        files = importlib.metadata.distribution(project(folder)["name"]).files
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("not installed here")
    assert any(file.name == "LICENSE" for file in files), "the installed package has no licence file"


def test_one_version_pinned_between_the_packages():
    described = [project(folder) for folder in PROJECTS]
    versions = {one["version"] for one in described}
    ours = {one["name"] for one in described}
    pins = {
        str(need.specifier)
        for one in described
        for need in map(Requirement, one["dependencies"])
        if need.name in ours
    }
    assert len(versions) == 1
    assert pins == {f"=={version}" for version in versions}


def test_the_tested_versions_are_versions_that_the_packages_allow():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    tested = {need.name: need for need in map(Requirement, lines)}
    for folder in PROJECTS:
        for need in map(Requirement, project(folder)["dependencies"]):
            pinned = [spec.version for spec in tested[need.name].specifier] if need.name in tested else []
            if len(pinned) == 1:
                assert need.specifier.contains(pinned[0]), (
                    f"{folder.name}: {need} excludes the tested {pinned[0]}"
                )
            elif not need.name.startswith("spec"):
                assert need.specifier == tested[need.name].specifier, f"{need} has no tested version"


def test_the_table_of_sources_points_at_what_exists():
    folder = ROOT / "third_party_licenses"
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (folder / "README.md").read_text().splitlines()
        if line.startswith("|") and not line.startswith(("|---", "| what"))
    ]
    cited = [(row[0], path) for row in rows for cell in row for path in re.findall(r"`([^`]+)`", cell)]
    assert cited
    assert not [
        (what, path) for what, path in cited if not ((ROOT / path).exists() or (folder / path).exists())
    ]
    shipped = ROOT / "packages" / "spectiny" / "LICENSE-PSF-2.0"
    assert shipped.read_text() == (folder / "PSF-2.0.txt").read_text()
    texts = {path.name for path in folder.iterdir()} - {"README.md"}
    assert texts == {path for _, path in cited if (folder / path).is_file() and "/" not in path}


def tracked(*suffixes: str) -> list[Path]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    paths = [ROOT / name for name in listed if name and (not suffixes or name.endswith(suffixes))]
    return [path for path in paths if path.is_file()]


WRITTEN_HERE = (".py", ".md", ".toml", ".txt", ".yml", ".cfg", "/run", "NOTICE")
UNFIT = {
    "a path of one machine": re.compile(r"""(?<![\w.:/])/(?:home|root|Users|work|mnt|opt|tmp)/\w"""),
    "a conflict marker": re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE),
    "a ticket that a stranger cannot open": re.compile(r"\bissue #?\d+\b", re.IGNORECASE),
    "unfinished work without a link or a version": re.compile(
        r"\b(?:TODO|FIXME|XXX)\b(?!.*(?:https?://|\d+\.\d+))"
    ),
}


@pytest.mark.parametrize("what", UNFIT)
def test_text_is_fit_for_strangers(what):
    # The standard library's source and the rules above hold such text on purpose.
    exempt = {ROOT / "third_party_licenses" / "PSF-2.0.txt", ROOT / "CONTRIBUTING.md", Path(__file__)}
    found = [
        f"{shown(path)}: {match.group()}"
        for path in tracked(*WRITTEN_HERE)
        if path not in exempt and "data" not in path.parts
        for match in UNFIT[what].finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_sources_are_ascii():
    wrong = [
        f"{shown(path)}:{number}"
        for path in tracked(".py", ".md")
        if "tests" not in path.parts and "data" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if not line.isascii()
    ]
    assert not wrong


def test_no_file_is_too_large_for_a_clone():
    limit = 10 * 2**20  # bytes: the largest file is a model of a few million parameters
    assert not [shown(path) for path in tracked() if path.stat().st_size > limit]


def test_the_structure_page_lists_every_module():
    listed = re.findall(r"^\| (\S+\.py) \|", (ROOT / "STRUCTURE.md").read_text(), re.MULTILINE)
    present = [
        path.relative_to(SOURCES[package]).as_posix()
        for package in SOURCES
        for path in modules(package)
        if path.name != "__init__.py"
    ]
    # python tools/structure.py brings the page up to date.
    assert sorted(listed) == sorted(present)


def test_tables_of_the_pages_are_those_of_the_recorded_runs():
    tables = runpy.run_path(str(ROOT / "tools/tables.py"))
    # python tools/tables.py brings them up to date.
    assert not [
        shown(path) for path in tables["PAGES"] if tables["filled"](path.read_text()) != path.read_text()
    ]
    assert any(tables["PLACE"].search(path.read_text()) for path in tables["PAGES"])
