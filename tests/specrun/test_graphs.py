"""Rounds as graphs: the same ids as rounds as they stand, one graph per plan and span, and nothing left of a rehearsal."""

import os

import pytest
import torch

from specrun import graphs
from specrun.clock import StageClock
from specrun.config import DraftOptions, Sampling
from specrun.graphs import Captured, Compiled, rehearse, widened
from specrun.loop import decode
from specrun.step import step

from doubles.engines import engine_for, small_target

PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8, 9, 7, 9]]
GREEDY = Sampling(max_new_tokens=24, stop_ids=())
SAMPLED = Sampling(max_new_tokens=24, stop_ids=(), temperature=0.9, seed=5)
FILTERED = Sampling(
    max_new_tokens=24, stop_ids=(), temperature=1.2, top_k=9, top_p=0.9, repetition_penalty=1.3
)


@pytest.fixture
def anywhere(monkeypatch, tmp_path):
    """Compiled code goes to a folder of the test, and no graph outlives it."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    yield
    torch.compiler.reset()


def ids_of(engine, sampling, batch_size):
    return [answer.token_ids for answer in engine.generate_batch(PROMPTS, sampling, batch_size=batch_size)]


def by_graphs(engine, run):
    engine._step = run
    return engine


@pytest.mark.parametrize(
    ("name", "sampling", "options"),
    [
        ("ar", FILTERED, None),
        ("dflash", SAMPLED, DraftOptions(accept="reject")),
        ("ddtree", SAMPLED, DraftOptions(tree_budget=9)),
    ],
)
@pytest.mark.usefixtures("anywhere")
def test_a_round_is_traced_whole_and_gives_the_same_ids(name, sampling, options):
    target = small_target()
    expected = ids_of(engine_for(name, target, options=options), sampling, 2)
    run = Compiled(backend="eager")
    engine = by_graphs(engine_for(name, target, options=options), run)
    assert ids_of(engine, sampling, 2) == expected
    # whatever the requests were, the second time nothing new is traced
    with torch.compiler.set_stance("fail_on_recompile"):
        assert ids_of(engine, sampling, 2) == expected
    assert len(run._graphs) == 1
    assert ids_of(engine, sampling, 3) == expected
    assert len(run._graphs) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # the compiler's own affair
@pytest.mark.usefixtures("anywhere")
def test_compiled_code_gives_the_same_ids_and_lies_where_it_was_sent(tmp_path):
    target = small_target(dtype=torch.float32)
    options = DraftOptions(block_size=3)
    expected = ids_of(engine_for("dflash", target, options=options), SAMPLED, 3)
    engine = engine_for("dflash", target, options=options)
    engine.compile()
    assert ids_of(engine, SAMPLED, 3) == expected
    assert any((tmp_path / "compiled").rglob("*.cpp"))


@pytest.mark.usefixtures("anywhere")
def test_the_clock_hears_of_whole_rounds():
    engine = by_graphs(engine_for("ar", small_target()), Compiled(backend="eager"))
    clock = StageClock(torch.device("cpu"))
    rounds = list(engine.stream(PROMPTS[0], GREEDY, clock=clock))
    assert rounds
    assert list(clock.seconds()) == ["round"]


def test_a_rehearsal_leaves_no_trace():
    target = small_target()
    engine = engine_for("ddtree", target, options=DraftOptions(tree_budget=9))
    expected = ids_of(engine, SAMPLED, 2)

    def rehearsed(state, parts, plan, **rest):
        rehearse(lambda: step(state, parts, plan, **rest), state, times=2)
        return step(state, parts, plan, **rest)

    assert ids_of(by_graphs(engine, rehearsed), SAMPLED, 2) == expected


def test_a_length_policy_and_a_compiled_round_exclude_each_other():
    with pytest.raises(ValueError, match="compile: a compiled round has one width"):
        engine_for("dflash", small_target(), options=DraftOptions(policy="threshold")).compile()


def test_spans_double():
    assert [widened(rows) for rows in (1, 256, 257, 512, 513, 4096)] == [256, 256, 512, 512, 1024, 4096]


def test_compiled_code_stays_where_the_user_sends_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
    graphs.keep_compiled_code()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "elsewhere"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    graphs.keep_compiled_code()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "specrun" / "compiled")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["ar", "dflash", "dominotree"])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_captured_rounds_give_the_same_ids(name, sampling):
    target = small_target(dtype=torch.float32).to("cuda")
    expected = ids_of(engine_for(name, target), sampling, 2)
    run = Captured(step)
    engine = by_graphs(engine_for(name, target), run)
    assert [ids_of(engine, sampling, 2) for _ in range(3)] == [expected] * 3
    assert len(run._graphs) == 1


@pytest.mark.gpu
def test_many_requests_leave_memory_and_graphs_as_they_are():
    target = small_target(dtype=torch.float32).to("cuda")
    run = Captured(step)
    engine = by_graphs(engine_for("ddtree", target), run)
    ids_of(engine, GREEDY, 2)
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        ids_of(engine, GREEDY, 2)
    assert torch.cuda.memory_allocated() == before
    assert len(run._graphs) == 1


@pytest.mark.gpu
def test_a_round_asks_the_device_for_nothing():
    target = small_target(dtype=torch.float32).to("cuda")
    engine = engine_for("dominotree", target)
    plan = engine.plan_for([SAMPLED])
    request = engine._request(0, PROMPTS[0], SAMPLED)
    state = engine._buffers(1, 64, plan)

    def strict(*given, **rest):
        torch.cuda.set_sync_debug_mode("error")
        try:
            return step(*given, **rest)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    for _ in decode(state, engine.parts, plan, [request], run=strict):
        pass
    assert request.finish is not None
