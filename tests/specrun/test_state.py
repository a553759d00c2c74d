"""Every buffer is written by the stages that its comment names, and by no other.

Catches a stage that quietly moves a length or touches a cache that is not its own, which a captured graph would repeat.
"""

import inspect
import re

import pytest
import torch

from speccorrect.length_head import LengthHead
from specrun import DraftOptions, Sampling
from specrun import loop as loop_module
from specrun import step as step_module
from specrun.state import DecodeState

from doubles.drafters import mixed
from doubles.engines import device_tensors, engine_for, scripted_engine, small_target

WRITERS = ("admit", "prefill", "draft", "look", "verify", "learn", "commit", "retire")
INNER = ("draft", "correct", "grow", "look", "trim", "verify", "learn", "commit")
SAMPLING = Sampling(max_new_tokens=15, temperature=1.0, frequency_penalty=0.4, top_k=9)


def stated():
    """Writers by buffer, as the comments of the fields have them."""
    lines = re.findall(r"^    (\w+): \S.*?  # (.*)$", inspect.getsource(DecodeState), re.MULTILINE)
    return {
        name: {writer for writer in WRITERS if re.search(rf"\b{writer}\b", comment)}
        for name, comment in lines
    }


def seen(monkeypatch, engine):
    """Writers by buffer, as the version counters of a whole generation have them."""
    found = {name: set() for name in stated()}

    def watch(stage, inner):
        def watched(*arguments, **named):
            state = engine._state
            before = {name: tensor._version for name, tensor in device_tensors(state).items()}
            result = inner(*arguments, **named)
            for name, tensor in device_tensors(state).items():
                if tensor._version != before[name]:
                    found[name.partition(".")[0]].add(stage)
            return result

        return watched

    for stage in INNER:
        monkeypatch.setattr(step_module, stage, watch(stage, getattr(step_module, stage)))
    monkeypatch.setattr(loop_module, "prefill", watch("prefill", loop_module.prefill))
    for method_name in ("admit", "retire"):
        monkeypatch.setattr(DecodeState, method_name, watch(method_name, getattr(DecodeState, method_name)))
    engine.generate([2, 5, 2], SAMPLING)
    return found


def test_every_buffer_states_its_writers():
    assert set(stated()) == set(DecodeState.__dataclass_fields__)
    assert all(stated().values())


def engine_with_policy(growth):
    """With a head of lengths, so that all is written that a policy can cause to be."""
    head = LengthHead(small_target().config.hidden_size, width=4).double()
    options = DraftOptions(policy="adaflash")
    return scripted_engine(growth, small_target(), mixed, [[2] * 40], options=options, length_head=head)


def test_a_tree_round_writes_what_is_stated(monkeypatch):
    assert seen(monkeypatch, engine_with_policy("tree")) == stated()


def test_without_a_policy_nothing_is_learnt(monkeypatch):
    found = seen(monkeypatch, scripted_engine("tree", small_target(), mixed, [[2] * 40]))
    for name in ("predicted_BKX", "accepted_BKX", "length_share_B"):
        assert found.pop(name) == {"admit"}
    assert found == {name: writers for name, writers in stated().items() if name in found}


def test_a_chain_round_leaves_the_cache_of_the_target_to_verify(monkeypatch):
    found = seen(monkeypatch, engine_with_policy("chain"))
    assert found.pop("target_kv") == {"admit", "prefill", "verify"}
    assert found == {name: writers for name, writers in stated().items() if name != "target_kv"}


@pytest.mark.parametrize("name", ["ar", "dflash", "ddtree"])
def test_buffers_never_move(name):
    """A captured graph holds addresses."""
    engine = engine_for(name, small_target())
    engine.generate([1, 2], SAMPLING)
    before = {key: tensor.data_ptr() for key, tensor in device_tensors(engine._state).items()}
    engine.generate([1], SAMPLING)
    assert {key: tensor.data_ptr() for key, tensor in device_tensors(engine._state).items()} == before


def test_a_row_shares_the_memory_of_its_state():
    engine = engine_for("dflash", small_target())
    engine.generate_batch([[1], [2]], SAMPLING)
    state = engine._state
    row = state.row(1)
    for name, tensor in device_tensors(row).items():
        whole = device_tensors(state)[name]
        batch = 1 if "kv" in name else 0
        other = whole.select(batch, 0).clone()
        tensor.fill_(1)
        assert tensor.shape[batch] == 1
        assert bool(whole.select(batch, 1).eq(1).all())
        assert torch.equal(whole.select(batch, 0), other)
