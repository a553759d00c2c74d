"""Names to folders: what is local stays local, and every way in which the hub can refuse is one clear line."""

from pathlib import Path

import pytest
from huggingface_hub import errors, try_to_load_from_cache

from specmodels.hub import cached, resolve
from specmodels.known import KNOWN_MODELS, known_drafter, known_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path / "model"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache, so that what this machine has downloaded does not matter."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Response:
    """As much of an HTTP answer as the hub's errors look at."""

    status_code = 403
    request = None
    text = ""

    def __init__(self) -> None:
        self.headers = {}


def refusing(monkeypatch, error: Exception) -> None:
    def refuse(*args, **kwargs):
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)


def complaint(*args, **kwargs) -> str:
    with pytest.raises(ValueError) as caught:
        resolve(*args, **kwargs)
    assert "\n" not in str(caught.value), "one line"
    return str(caught.value)


def test_a_folder_is_itself(folder):
    assert resolve(folder) == folder
    assert resolve(str(folder)) == folder


def test_a_folder_that_is_not_there(tmp_path):
    for source in (tmp_path / "none", str(tmp_path / "none"), "./none", "a/b/c"):
        assert "missing, expected a folder with config.json" in complaint(source)


def test_a_folder_without_a_model(tmp_path):
    assert "no config.json" in complaint(tmp_path)


def test_an_embedded_model_is_where_the_caller_says(folder):
    assert resolve("tiny", embedded={"tiny": folder}) == folder
    assert "install spectiny" in complaint("tiny")


def test_an_unknown_name_lists_the_known_ones():
    message = complaint("qwen3-9b")
    assert "got 'qwen3-9b'" in message
    for name in KNOWN_MODELS:
        assert name in message


def test_known_names_go_to_their_repository_and_revision(monkeypatch, folder):
    asked = []

    def download(repo, **options):
        asked.append((repo, options["revision"], options["local_files_only"]))
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert resolve("qwen3-8b") == folder
    resolve("qwen3-8b", revision="abc", offline=True)
    resolve("owner/name@v1")
    resolve("owner/name", revision="v2")
    resolve("owner/name")
    assert asked == [
        ("Qwen/Qwen3-8B", known_model("qwen3-8b").revision, False),
        ("Qwen/Qwen3-8B", "abc", True),
        ("owner/name", "v1", False),
        ("owner/name", "v2", False),
        ("owner/name", "main", False),
    ]
    assert "got v1 and v2, expected one" in complaint("owner/name@v1", revision="v2")


def test_offline_without_the_files(cache):
    message = complaint("qwen3-4b", offline=True)
    assert "Qwen/Qwen3-4B@1cfa9a7" in message
    assert "not on this machine while offline" in message


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (
            errors.GatedRepoError("no", response=Response()),
            "gated; accept its licence at https://huggingface.co/a/b",
        ),
        (errors.RepositoryNotFoundError("no", response=Response()), "no such repository, or it is private"),
        (errors.RevisionNotFoundError("no", response=Response()), "no such revision"),
        (errors.LocalEntryNotFoundError("no"), "hub not reachable and not on this machine"),
        (errors.OfflineModeIsEnabled("no"), "not on this machine while offline"),
        (
            errors.HfHubHTTPError("500 Server Error\nmore", response=Response()),
            "download failed (500 Server Error)",
        ),
        (
            OSError("No space left on device"),
            "download failed (No space left on device); run again to resume it",
        ),
    ],
)
def test_what_the_hub_says_in_one_line(monkeypatch, error, part):
    refusing(monkeypatch, error)
    message = complaint("a/b@c")
    assert message.startswith("a/b@c: ")
    assert part in message


def test_what_the_cache_holds_is_found_where_the_hub_looks_for_it(cache):
    """By branch and by commit, in the layout that the library itself reads."""
    commit = "0123456789" * 4
    kept = cache / "models--a--b"
    snapshot = kept / "snapshots" / commit
    assert cached("a/b", "main") is None
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert cached("a/b", commit) == snapshot
    assert cached("a/b", "main") is None, "no branch is known yet"
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(commit)
    assert cached("a/b", "main") == snapshot
    assert cached("a/c", "main") is None
    for revision in (commit, "main"):
        found = try_to_load_from_cache("a/b", "config.json", cache_dir=cache, revision=revision)
        assert Path(found).parent == snapshot


def test_the_table_is_complete():
    assert {"tiny", "qwen3-4b", "qwen3-8b", "llama3.1-8b"} <= set(KNOWN_MODELS)
    assert {name for name, model in KNOWN_MODELS.items() if model.diffusion} == {
        "tiny-llada",
        "tiny-llada-mini",
        "llada2.1-mini",
        "llada2.1-flash",
    }
    for name, model in KNOWN_MODELS.items():
        assert model.name == name
        assert model.licence
        assert bool(model.repo) != model.embedded
        assert model.embedded or model.diffusion or "dflash" in model.drafters
        for drafter in model.drafters.values():
            assert drafter.revision == "main" or len(drafter.revision) == 40


def test_drafters_of_known_models():
    assert known_drafter("qwen3-8b", "dflash").repo == "z-lab/Qwen3-8B-DFlash-b16"
    assert known_drafter("qwen3-8b", "dspark").stated == {"sample_from_anchor": True}
    with pytest.raises(ValueError, match=r"drafter of llama3\.1-8b: got 'domino', expected one of: dflash"):
        known_drafter("llama3.1-8b", "domino")
