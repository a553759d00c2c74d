"""A record names the commit and tells changed sources from the commit's."""

import json
import subprocess

import torch

from spectrain.record import source_hash, write_record


def test_record_is_complete(tmp_path, monkeypatch):
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("x = 1\n")
    write_record(
        tmp_path / "out" / "record.json", seed=3, data={"train": "ab"}, sources=[tmp_path / "code"], rows=4
    )
    found = json.loads((tmp_path / "out" / "record.json").read_text())
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found["commit"] == head.stdout.strip()
    assert found["versions"]["torch"] == torch.__version__
    assert (found["seed"], found["data"], found["rows"]) == (3, {"train": "ab"}, 4)
    assert found["sources"] == source_hash([tmp_path / "code"])


def test_source_hash_sees_names_and_contents(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    before = source_hash([tmp_path])
    (tmp_path / "a.py").write_text("x = 2\n")
    changed = source_hash([tmp_path])
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({before, changed, source_hash([tmp_path])}) == 3
