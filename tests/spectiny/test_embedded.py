"""Where the engine finds the embedded family."""

from importlib.metadata import entry_points

import pytest

from spectiny import embedded


def test_folders_by_corrector(tmp_path, monkeypatch):
    for name in ("qwen3-tiny", "qwen3-tiny-dflash", "qwen3-tiny-domino"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "config.json").touch()
    (tmp_path / "data" / "qwen3-tiny-unfinished").mkdir()
    monkeypatch.setattr(embedded, "files", lambda package: tmp_path)
    target, drafters = embedded.tiny()
    data = tmp_path / "data"
    assert target == data / "qwen3-tiny"
    assert drafters == {"none": data / "qwen3-tiny-dflash", "domino": data / "qwen3-tiny-domino"}


def test_the_entry_point_is_registered():
    points = {point.name: point for point in entry_points(group="specrun.models")}
    if not points:
        pytest.skip("spectiny is not installed here")
    assert points["tiny"].load() is embedded.tiny
    if "tiny-llada" not in points:
        pytest.skip("an older spectiny is installed here")
    assert points["tiny-llada"].load() is embedded.tiny_llada
    assert points["tiny-llada-mini"].load() is embedded.tiny_llada_mini


def test_the_pair_of_block_diffusion_has_no_drafters():
    assert embedded.tiny_llada() == (embedded.tiny_llada()[0], {})
    assert embedded.tiny_llada()[0].name == "llada-tiny"
    assert embedded.tiny_llada_mini()[0].name == "llada-tiny-mini"
