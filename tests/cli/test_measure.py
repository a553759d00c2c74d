"""`specrun doctor --measure`: a table and bars for people, JSON for programs, and the file that policies take."""

import json


def test_people_get_a_table_and_bars_of_80_columns(specrun, family, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    models = ("--model", family.target, "--draft", family.drafter)
    out = specrun("doctor", "--measure", *models, "--contexts", "8,40")
    assert out.code == 0
    lines = out.out.splitlines()
    assert all(len(line) <= 80 for line in lines[1:])
    assert [line.split(":")[0] for line in lines if line.startswith("context")] == ["context 8", "context 40"]
    header = next(line for line in lines if line.startswith("rows"))
    assert header.split()[:8] == ["rows", "draft", "correct", "grow", "trim", "verify", "accept", "commit"]
    assert sum("#" in line for line in lines) == 2 * 5
    assert len(list((tmp_path / "specrun").iterdir())) == 1


def test_programs_get_json_and_a_policy_the_stored_table(specrun, family, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    models = ("--model", family.target, "--draft", family.drafter)
    found = json.loads(specrun("doctor", "--measure", *models, "--json").out)
    assert found["widths"] == [1, 2, 3, 4, 6]
    monkeypatch.setattr("specrun.measure.measure_costs", None)
    arguments = ("generate", "Hi", *models, "--method", "dflash", "--max-new-tokens", "9", "--json")
    trimmed = specrun(*arguments, "--policy", "measured")
    assert trimmed.code == 0, trimmed.err
    assert trimmed.record["token_ids"] == specrun(*arguments).record["token_ids"]
