"""The command as a process: start-up, exit codes, and a reader that goes away."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields

import pytest

from specrun import DraftOptions, Sampling
from specrun.plan import DEFAULT_DRAFT_TEMPERATURE
from specrun_cli import arguments
from specrun_cli.opening import METHOD, MODEL

COMMAND = (sys.executable, "-m", "specrun_cli")


WITHOUT_MODELS = [
    "--help",
    "--version",
    "generate --help",
    "methods",
    "methods --json",
    "models",
    "models --json",
]


@pytest.mark.parametrize("line", WITHOUT_MODELS)
def test_what_needs_no_model_imports_nothing_heavy(line):
    code = f"""
import sys
from specrun_cli.main import main
try:
    code = main({line.split()!r})
except SystemExit as stop:
    code = stop.code
print(code, *sorted({{"torch", "numpy", "tokenizers", "jinja2"}} & sys.modules.keys()), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr == "0\n"


def test_version():
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("specrun 0.")
    assert done.stderr == ""


def test_help_repeats_the_defaults_of_the_library(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    with pytest.raises(SystemExit) as stop:
        arguments.parser().parse_args(["generate", "--help"])
    assert stop.value.code == 0
    options = capsys.readouterr().out.split("\n  --")[1:]
    helps = {f"--{option.split()[0].strip(',')}": option for option in options}
    defaults = {field.name: field.default for field in fields(Sampling) if not field.name.startswith("stop")}
    defaults |= {"model": MODEL, "method": METHOD, "draft_temperature": DEFAULT_DRAFT_TEMPERATURE}
    for name, value in defaults.items():
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        assert re.search(rf"\(default: {re.escape(shown)}[),;]", helps[f"--{name.replace('_', '-')}"])
    assert {f"--{field.name.replace('_', '-')}" for field in fields(DraftOptions)} <= helps.keys()
    assert "anchor included" in helps["--block-size"]
    assert "anchor not counted" in helps["--tree-budget"]


def test_a_request_from_end_to_end(family):
    arguments = (
        "generate",
        "-",
        "--model",
        family.target,
        "--draft",
        family.drafter,
        "--method",
        "dflash",
        "--max-new-tokens",
        "8",
        "--json",
    )
    done = subprocess.run([*COMMAND, *arguments], input="Hello", capture_output=True, text=True, check=True)
    assert done.stdout.startswith('{"text": ')
    assert done.stderr == ""


def test_errors_end_with_code_2():
    done = subprocess.run(
        [*COMMAND, "generate", "--speed", "11"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("specrun: ")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_crash(family):
    arguments = ("generate", "Hello", "--model", family.target, "--method", "ar", "--max-new-tokens", "200")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, *arguments], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_interrupt_ends_with_code_130(family):
    arguments = ("generate", "Hello", "--model", family.target, "--method", "ar", "--max-new-tokens", "230")
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        first = process.stdout.read(1)  # the text has begun
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        rest, complaint = process.communicate(timeout=60)
    assert first
    assert complaint == ""
    # a fast machine may have been done before the signal came
    assert process.returncode == 130 or (process.returncode == 0 and rest.endswith("\n"))
