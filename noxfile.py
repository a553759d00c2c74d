"""The one entry to every check: `nox` runs lint, types and test; `nox -l` lists the rest.

Environments are made with virtualenv and filled with pip on purpose: pip takes a torch wheel that lies on disk or in its
cache, where other installers would fetch gigabytes once more per session. Bytecode is left uncompiled (`--no-compile`):
that halves the time of an install, and a session imports a small part of what it installs.
"""

import shutil
import tempfile
import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["lint", "types", "test"]
nox.options.default_venv_backend = "virtualenv"
nox.options.error_on_external_run = True

ROOT = Path(__file__).parent
# In the order of the arrows: each may import those before it, as its own pyproject says.
PACKAGES = [
    "packages/speccorrect",
    "packages/specmodels",
    "packages/specrun",
    "packages/spectrain",
    "packages/spectiny",
    "apps/cli",
]
TEST_TOOLS = ["pytest", "pytest-xdist", "hypothesis", "openai"]
# What parts of the command need that are not installed with it.
EXTRAS = ["serve", "convert", "plots"]
# One thread each: on models this small, threads that wait for each other cost far more than they save.
CPU_ONLY = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def project(package: str) -> dict:
    """Return the [project] table of one package."""
    return tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]


def module(package: str) -> str:
    """Return the name under which a package is imported."""
    return project(package)["name"].replace("-", "_")


def requirements() -> list[str]:
    """Return what the packages need from elsewhere, as their own files declare it."""
    ours = {project(package)["name"] for package in PACKAGES}
    declared = {line for package in PACKAGES for line in project(package)["dependencies"]}
    return sorted(line for line in declared if line.partition("=")[0] not in ours)


def extras() -> list[str]:
    """Return what the named extras of the command need from elsewhere."""
    ours = tuple(project(package)["name"] for package in PACKAGES)
    declared = project("apps/cli")["optional-dependencies"]
    return sorted(line for extra in EXTRAS for line in declared[extra] if not line.startswith(ours))


def pip_install(session: nox.Session, *arguments: str) -> None:
    """Install under the tested versions."""
    session.install("--no-compile", "-c", str(ROOT / "constraints.txt"), *arguments)


def install_packages(session: nox.Session, *tools: str) -> None:
    """Install every package of this checkout as a wheel, and the tools beside it."""
    # The build backend once, instead of one environment per package for it.
    pip_install(session, "flit_core", *requirements(), *tools)
    session.install(
        "--no-compile", "--no-deps", "--no-build-isolation", *(f"./{package}" for package in PACKAGES)
    )


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: rules and format. `nox -s lint -- --fix` mends what it can."""
    pip_install(session, "ruff")
    session.run("ruff", "check", *session.posargs, ".")
    session.run("ruff", "format", *([] if "--fix" in session.posargs else ["--check"]), ".")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict, over packages and apps."""
    # The sources are read from the checkout, so only what they import is installed.
    pip_install(session, "mypy", "types-tqdm", *requirements(), *extras())
    session.run("mypy", *session.posargs)


@nox.session
def test(session: nox.Session) -> None:
    """All packages on the CPU, without network. `nox -s test -- tests/specrun -k tree` runs a part."""
    install_packages(session, *TEST_TOOLS, *extras())
    session.run(
        "pytest",
        *("-n", "auto", "--maxprocesses", "8", "--dist", "worksteal"),
        *("-m", "not parity and not gpu and not net"),
        *session.posargs,
        env=CPU_ONLY,
    )


@nox.session
def alone(session: nox.Session) -> None:
    """The speccorrect wheel with torch and nothing else, its tests run from a copy in another folder."""
    pip_install(session, "flit_core", "pytest", "hypothesis", "torch")
    with tempfile.TemporaryDirectory() as folder:
        session.run(
            "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, "./packages/speccorrect"
        )
        session.install("--no-deps", "--force-reinstall", *map(str, Path(folder).glob("*.whl")))
        # The wheel came without its dependencies: this says whether what it declares is here.
        session.run("pip", "check")
        shutil.copy(ROOT / "pyproject.toml", folder)
        shutil.copytree(ROOT / "tests", Path(folder, "tests"), ignore=only_speccorrect)
        others = [module(package) for package in PACKAGES if package != "packages/speccorrect"]
        with session.chdir(folder):
            session.run(
                "python", "-c", ALONE, *others, "numpy", "safetensors", "tokenizers", "huggingface_hub"
            )
            session.run("pytest", "tests/speccorrect", *session.posargs, env=CPU_ONLY)


def only_speccorrect(folder: str, names: list[str]) -> set[str]:
    """Leave out of a copy of tests/ what is neither speccorrect's nor shared."""
    keep = {"conftest.py", "speccorrect", "doubles", "reference"}
    return set(names) - keep if Path(folder) == ROOT / "tests" else {"__pycache__"}


ALONE = """
import importlib.util, speccorrect, sys
found = [name for name in sys.argv[1:] if importlib.util.find_spec(name)]
assert not found, f"importable beside speccorrect: {found}"
assert "site-packages" in speccorrect.__file__, f"imported from the checkout: {speccorrect.__file__}"
"""


@nox.session
def parity(session: nox.Session) -> None:
    """Public implementations as oracles: transformers, and dflash and speculators without what they pin."""
    # accelerate is what transformers reads GGUF files with
    install_packages(session, *TEST_TOOLS, "transformers", "accelerate", *extras())
    session.install("--no-compile", "--no-deps", "dflash==0.1.0", "speculators==0.9.0")
    session.run("pytest", "-m", "parity and not gpu and not net", *session.posargs, env=CPU_ONLY)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure every method with `specrun bench`; arguments after -- go to it."""
    install_packages(session, "matplotlib")
    session.run("specrun", "bench", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Wheels and source archives of all packages in dist/, imported from another folder."""
    pip_install(session, "build", "flit_core", *requirements())
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for package in PACKAGES:
        session.run("python", "-m", "build", "--no-isolation", "--outdir", str(dist), package, silent=True)
    wheels = sorted(map(str, dist.glob("*.whl")))
    session.install("--no-compile", "--no-deps", "--force-reinstall", *wheels)
    session.run("pip", "check")
    with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
        session.run("python", "-c", BUILT, str(dist), *map(module, PACKAGES), log=False)


BUILT = """
import importlib, pathlib, sys, tarfile, zipfile
dist, *names = sys.argv[1:]
for name in names:
    module = importlib.import_module(name)
    assert "site-packages" in module.__file__, f"imported from the checkout: {module.__file__}"
for archive in sorted(pathlib.Path(dist).iterdir()):
    if archive.suffix == ".whl":
        inside = zipfile.ZipFile(archive).namelist()
    else:
        inside = tarfile.open(archive).getnames()
    assert any(path.endswith("/LICENSE") for path in inside), f"no licence in {archive.name}"
    print(f"{archive.name}: {archive.stat().st_size / 1e6:.2f} MB, {len(inside)} files")
"""
