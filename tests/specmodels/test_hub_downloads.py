"""Downloads from a hub on loopback that breaks off, lies, refuses or is slow: nothing half-written passes for whole."""

import multiprocessing
import os
import signal
import time

import pytest

from specmodels import load_target, save_target
from specmodels.hub import cached, resolve

from doubles.hub import COMMIT, Hub
from doubles.tiny import qwen3_config, tiny_target

REPO = "owner/model"


@pytest.fixture(name="cache", autouse=True)
def _cache(tmp_path, monkeypatch):
    constants = "huggingface_hub.constants"
    monkeypatch.setattr(f"{constants}.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(f"{constants}.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(f"{constants}.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    return tmp_path / "cache"


@pytest.fixture(name="hub")
def _hub(tmp_path, monkeypatch):
    """A hub that holds a small target of several files."""
    save_target(tiny_target(qwen3_config()), tmp_path / "made")
    hub = Hub()
    hub.files = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    hub.files["pytorch_model.bin"] = b"a pickle"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.address)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
        hub.address + "/{repo_id}/resolve/{revision}/{filename}",
    )
    yield hub
    hub.close()


def fetched(**options):
    return resolve(REPO, **options)


def complaint(**options):
    with pytest.raises(ValueError) as caught:
        fetched(**options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def partial(cache):
    """Files under a name of the model whose content is not the hub's, and leftovers."""
    return [path for path in cache.rglob("*") if path.name.endswith(".incomplete")]


def test_a_model_comes_down_and_loads(hub, cache):
    folder = fetched()
    assert load_target(folder).config == qwen3_config()
    assert not (folder / "pytorch_model.bin").exists(), "pickles are not fetched"
    assert cached(REPO, "main") == folder
    assert partial(cache) == []
    before = len(hub.asked)
    assert fetched() == folder
    assert not [path for method, path, _ in hub.asked[before:] if "resolve" in path], "fetched once"


def test_what_was_fetched_serves_offline(hub):
    folder = fetched()
    hub.close()
    assert fetched(offline=True) == folder
    assert fetched() == folder, "and while the hub is away"


def test_a_broken_connection_is_taken_up_where_it_broke(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    hub.cut_after["model.safetensors"] = 5000
    folder = fetched()
    assert hub.bodies("model.safetensors") == [None, "bytes=5000-"]
    assert (folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_a_file_that_stays_short_is_not_taken_for_whole(hub, cache):
    hub.short["model.safetensors"] = 100
    assert "download failed" in (message := complaint())
    assert "run again to resume it" in message
    assert partial(cache) == []
    # neither now nor offline does the folder pass for the model
    for offline in (False, True):
        assert complaint(offline=offline).startswith(f"{REPO}@main: ")
    del hub.short["model.safetensors"]
    whole_before = hub.bodies("config.json")
    assert load_target(fetched()).config == qwen3_config()
    assert hub.bodies("config.json") == whole_before, "files that were whole are kept"


def test_a_file_cut_on_this_disk_is_refused_by_name(hub):
    folder = fetched()
    weights = (folder / "model.safetensors").resolve()
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(
        ValueError, match=r"model\.safetensors: truncated, got \d+ bytes, expected \d+; download"
    ):
        load_target(fetched(offline=True))


@pytest.mark.parametrize(
    ("status", "code", "message", "part"),
    [
        (401, "GatedRepo", "restricted", "gated; accept its licence at https://huggingface.co/owner/model"),
        (403, "GatedRepo", "restricted", "gated; accept its licence"),
        (401, "RepoNotFound", "not found", "no such repository, or it is private"),
        (404, "RepoNotFound", "not found", "no such repository, or it is private"),
        (404, "RevisionNotFound", "no revision", "no such revision; expected a branch, tag or commit"),
    ],
)
def test_refusals(hub, cache, status, code, message, part):
    hub.refused = (status, code, message)
    assert part in complaint()
    assert not list(cache.rglob("config.json"))


def test_a_hub_that_is_down(hub):
    hub.close()
    assert "hub not reachable and not on this machine" in complaint()


def test_a_hub_with_trouble_of_its_own(hub, monkeypatch):
    hub.refused = (500, "", "out of order")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert complaint().startswith(f"{REPO}@main: ")


def test_a_slow_hub_is_waited_for(hub):
    hub.delay = 0.05
    started = time.monotonic()
    assert load_target(fetched()).config == qwen3_config()
    assert time.monotonic() - started >= 0.05


def test_a_killed_download_leaves_nothing_that_passes_for_whole(hub, cache):
    """The process dies in the middle of the weights; the next one starts with what was whole."""
    hub.delay = 600.0  # the child is killed long before
    child = multiprocessing.get_context("fork").Process(target=fetched)
    child.start()
    deadline = time.monotonic() + 20
    while not hub.bodies("model.safetensors") and time.monotonic() < deadline:
        time.sleep(0)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    snapshot = cache / "models--owner--model" / "snapshots" / COMMIT
    assert not (snapshot / "model.safetensors").exists()
    assert complaint(offline=True).startswith(f"{REPO}@main: ")
    hub.delay = 0.0
    assert load_target(fetched()).config == qwen3_config()
