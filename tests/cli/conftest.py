"""One random family in folders for all tests of the command line, and a way to call it."""

import json
from typing import NamedTuple

import pytest

from specrun_cli.main import main

from doubles.family import write_family


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def record(self) -> dict:
        return json.loads(self.out.splitlines()[-1])


@pytest.fixture(scope="session")
def family(tmp_path_factory):
    return write_family(tmp_path_factory.mktemp("family"))


@pytest.fixture
def specrun(capsys):
    """Run the command in this process."""

    def run(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(autouse=True, scope="session")
def _cache(tmp_path_factory):
    """What commands measure is kept for the session, and not in the home of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def generate(specrun, family):
    """`specrun generate` with the random family and dflash, 24 new tokens, unless said otherwise."""

    def run(*arguments, draft=True, limit=24):
        drafter = ("--draft", family.drafter) if draft else ()
        method = () if "--method" in arguments else ("--method", "dflash")
        models = ("--model", family.target, *drafter, *method)
        return specrun("generate", *models, "--max-new-tokens", limit, *arguments)

    return run
