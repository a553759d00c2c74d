"""`specrun export`: what it writes drafts as before, and wrong input leaves nothing behind."""

import pytest

OUT = "--output"


@pytest.mark.parametrize("layout", ["public", "speculators"])
def test_an_export_drafts_as_before(specrun, generate, family, tmp_path, layout):
    there = tmp_path / "made" / "drafter"
    outcome = specrun(
        *("export", "--model", family.target, "--draft", family.drafter, "--dtype", "float32"),
        *("--layout", layout, OUT, there),
    )
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith(f"written: {there} ({family.drafter} for {family.target}, head none")
    assert sorted(path.name for path in there.iterdir()) == ["config.json", "model.safetensors"]
    assert [path.name for path in there.parent.iterdir()] == ["drafter"]
    before = generate("Once", "--json").record
    again = generate("Once", "--json", "--draft", there, draft=False).record
    assert (again["token_ids"], again["rounds"]) == (before["token_ids"], before["rounds"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the following arguments are required: --output"),
        ((OUT, "new", "--method", "ar"), "method: got ar, which drafts nothing"),
        ((OUT, "new", "--method", "domino"), "draft: "),
        ((OUT, "new", "--dtype", "int4"), "dtype: got 'int4', expected one of float32"),
        ((OUT, "new", "--layout", "onnx"), "--layout: got 'onnx', expected one of"),
        ((OUT, "full"), "output: got 'full', expected a folder that is empty or not there yet"),
    ],
)
def test_wrong_input_leaves_nothing(specrun, family, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("kept")
    outcome = specrun("export", "--model", family.target, "--draft", family.drafter, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"specrun: {message}"), outcome.err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full"]


def test_a_head_without_a_place_in_the_layout_leaves_nothing(specrun, tmp_path):
    outcome = specrun("export", "--method", "lilicorr", "--layout", "speculators", OUT, tmp_path / "new")
    assert outcome.code == 2
    assert "has no head lilicorr, expected one of dflash, dflash2, dspark, xpress" in outcome.err
    assert list(tmp_path.iterdir()) == []
