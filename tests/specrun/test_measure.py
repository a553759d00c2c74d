"""Costs of rounds: what the table holds, that nothing is committed meanwhile, and that the disk is asked first."""

import json

import pytest
import torch

from specrun import DraftOptions, Sampling, store
from specrun import measure as measure_module
from specrun.measure import known_costs, measure_costs

from doubles.engines import engine_for, small_target


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "specrun"


@pytest.fixture
def places(tmp_path):
    made = []
    for name in ("target", "draft"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        made.append(folder)
    return made


def engine(name="dflash", **options):
    return engine_for(name, small_target(dtype=torch.float32), options=DraftOptions(**options))


@pytest.mark.parametrize(
    ("name", "widths"), [("dflash", (1, 2, 3, 4, 6)), ("ddtree", (1, 2, 3, 4, 6, 8, 10))]
)
def test_the_table_has_every_width_at_every_context(name, widths):
    budget = {"tree_budget": 9} if name == "ddtree" else {}
    found = measure_costs(engine(name, **budget), contexts=(16, 40, 100_000), repeats=2)
    assert found.widths == widths
    assert found.contexts[:2] == (16, 40)
    assert 200 < found.contexts[2] < 256
    assert list(found.stages) == ["draft", "correct", "grow", "trim", "verify", "accept", "commit"]
    for context, row in enumerate(found.round):
        for width, seconds in enumerate(row):
            parts = sum(table[context][width] for table in found.stages.values())
            assert 0.3 * parts < seconds < 1


def test_rounds_run_the_widths_that_they_are_filed_under(monkeypatch):
    seen = []
    inner = measure_module.step

    def watched(state, parts, plan, **named):
        length = state.length_B.clone()
        committed = inner(state, parts, plan, **named)
        assert torch.equal(state.length_B, length), "a complete request moved"
        seen.append((parts.drafter is not None, committed.rows))
        return committed

    monkeypatch.setattr(measure_module, "step", watched)
    measure_costs(engine(), contexts=(16,), batch=2, repeats=1)
    turn = [(False, 1), *((True, width) for width in (1, 2, 3, 4, 6))]
    assert seen == turn * (1 + measure_module.WARM_UP)


def test_what_was_measured_once_is_read_from_the_disk(kept, places, monkeypatch):
    first = known_costs(engine(), *places, contexts=(16,))
    assert len(list(kept.iterdir())) == 1
    monkeypatch.setattr(measure_module, "measure_costs", lambda *_, **__: pytest.fail("measured again"))
    assert known_costs(engine(), *places, contexts=(16,)) == first


@pytest.mark.parametrize("change", ["weights", "block", "context", "threads", "file", "again"])
def test_another_machine_other_weights_or_a_broken_file_are_measured(kept, places, monkeypatch, change):
    known_costs(engine(), *places, contexts=(16,))
    asked = []
    inner = measure_module.measure_costs
    monkeypatch.setattr(
        measure_module, "measure_costs", lambda *a, **k: asked.append(1) or inner(*a, repeats=1, **k)
    )
    options, contexts, again = {}, (16,), False
    if change == "weights":
        (places[1] / "model.safetensors").write_bytes(b"other")
    elif change == "block":
        options = {"block_size": 3}
    elif change == "context":
        contexts = (16, 32)
    elif change == "threads":
        monkeypatch.setattr(store.torch, "get_num_threads", lambda: 17)
    elif change == "file":
        next(kept.iterdir()).write_text("{")
    else:
        again = True
    known_costs(engine(**options), *places, contexts=contexts, again=again)
    assert asked == [1]


def test_a_disk_that_takes_nothing_is_no_reason_to_stop(places, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert known_costs(engine(), *places, contexts=(16,)).widths[0] == 1


def test_a_stored_file_describes_itself(kept, places):
    known_costs(engine(), *places, contexts=(16,))
    held = json.loads(next(kept.iterdir()).read_text())
    assert {"device", "dtype", "threads", "torch", "specrun", "target", "draft", "method"} <= set(
        held["described"]
    )


def test_plain_decoding_has_no_widths():
    with pytest.raises(ValueError, match="costs: method ar drafts nothing"):
        measure_costs(engine_for("ar", small_target()))


def test_a_policy_that_reads_costs_needs_some():
    with pytest.raises(ValueError, match="policy: got one that reads costs"):
        engine(policy="measured")


def test_measured_by_a_measured_table_gives_the_plain_text():
    sampling = Sampling(max_new_tokens=24)
    table = measure_costs(engine(), contexts=(16,), repeats=1)
    trimmed = engine_for(
        "dflash", small_target(dtype=torch.float32), options=DraftOptions(policy="measured"), costs=table
    )
    plain = engine_for("ar", small_target(dtype=torch.float32))
    assert trimmed.generate([3, 1], sampling).token_ids == plain.generate([3, 1], sampling).token_ids
