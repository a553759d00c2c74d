"""`specrun bench`: what it counts, what it says of simulated runs, what it writes, and what it refuses."""

import json

import pytest

from specrun_cli import bench

SHORT = ("--max-new-tokens", 6, "--repeats", 2, "--threads", 1)


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("0 1 2", "3 4", "5 6 7")))
    return path


def cells(record):
    return {(cell["method"], cell["temperature"], cell["batch_size"]): cell for cell in record["cells"]}


def test_every_method_is_measured_on_the_same_tokens(specrun, family, prompts, tmp_path):
    outcome = specrun(
        *("bench", "--model", family.target, "--draft", family.drafter, "--methods", "dflash,ddtree"),
        *("--tree-budget", 5, "--prompts", prompts, "--count", 2),
        *("--temperatures", "0,0.7", "--batch-sizes", "1,2"),
        *("--output", tmp_path / "out", *SHORT),
    )
    assert outcome.code == 0, outcome.err
    record = json.loads((tmp_path / "out" / "bench.json").read_text())
    found = cells(record)
    assert len(found) == len(record["cells"]) == 3 * 2 * 2
    for (name, temperature, batch_size), cell in found.items():
        plain = found["ar", temperature, batch_size]
        assert [run["tokens"] for run in cell["runs"]] == [run["tokens"] for run in plain["runs"]]
        assert cell["rows"] == {"ar": 1, "ddtree": 6}.get(name, cell["rows"])
        assert sum(cell["stages"].values()) == pytest.approx(cell["ms_per_round"], rel=0.25)
        low, high = cell["tokens_per_second_spread"]
        assert low <= cell["tokens_per_second"] <= high
    # two prompts side by side take as many rounds as the longer one
    assert found["ar", 0.0, 2]["runs"][0]["rounds"] < found["ar", 0.0, 1]["runs"][0]["rounds"]
    assert found["ar", 0.0, 1]["faster"] == found["ar", 0.0, 1]["plain_steps"] == 1.0
    assert (tmp_path / "out" / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert max(map(len, outcome.out.splitlines()[2:])) <= 80
    assert "SIMULATED" not in outcome.out


def test_simulated_acceptance_is_arithmetic_and_is_marked(specrun, tmp_path):
    outcome = specrun(
        *("bench", "--random-weights", "tiny", "--context", 12, "--methods", "dflash"),
        *("--simulate-acceptance", 4, "--output", tmp_path, *SHORT),
    )
    assert outcome.code == 0, outcome.err
    assert "SIMULATED: 4 tokens per round assumed" in outcome.out
    record = json.loads((tmp_path / "bench.json").read_text())
    drafted = cells(record)["dflash", 0.0, 1]
    assert record["random_weights"]
    assert drafted["simulated"]
    assert drafted["tokens_per_round"] == 4
    assert drafted["faster"] == pytest.approx(4 / drafted["plain_steps"], rel=2e-3)


def test_without_the_extra_there_is_a_record_and_no_picture(specrun, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    outcome = specrun(
        "bench", "--random-weights", "tiny", "--methods", "ar", "--context", 4, "--output", tmp_path, *SHORT
    )
    assert outcome.code == 0
    assert "pip install specrun-cli[plots]" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--repeats", 0], "repeats: got 0, expected at least 1"),
        (["--batch-sizes", "1,0"], "batch sizes: got 0, expected at least 1"),
        (["--random-weights", "huge"], "random weights: got 'huge', expected one of tiny, qwen3-0.6b"),
        (["--random-weights", "tiny", "--model", "tiny"], "model: has no effect with --random-weights"),
        (["--simulate-acceptance", 4], "simulate acceptance: has no effect with real weights"),
        (["--random-weights", "tiny", "--simulate-acceptance", 0.5], "expected at least 1 token per round"),
        (["--methods", "nothing"], "method: got 'nothing', expected one of ar, "),
        (["--temperatures", "0,warm"], "temperatures: got 'warm', expected a number"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(specrun, arguments, complaint):
    outcome = specrun("bench", *arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert complaint in outcome.err
    assert outcome.err.count("\n") == 1
