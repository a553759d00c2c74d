"""Model folders are found by name."""

import pytest

import spectiny
from spectiny import folders


def test_the_target_has_its_files():
    names = {path.name for path in spectiny.folder("qwen3-tiny").iterdir()}
    assert {"tokenizer.json", "tokenizer_config.json", "generation_config.json"} <= names


def test_an_unknown_model_is_refused():
    with pytest.raises(ValueError, match="expected one of qwen3-tiny, qwen3-tiny-dflash"):
        spectiny.folder("qwen3-huge")


def test_a_model_without_files_is_refused(monkeypatch):
    monkeypatch.setattr(folders, "MODELS", (*folders.MODELS, "qwen3-gone"))
    with pytest.raises(ValueError, match="reinstall spectiny"):
        spectiny.folder("qwen3-gone")
