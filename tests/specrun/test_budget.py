"""The budget, read from files, is what an engine takes."""

import pytest
import torch

from specrun import Sampling, load_engine, method
from specrun.budget import USUAL, memory_budget

from doubles.engines import device_tensors
from doubles.family import MAX_POSITIONS, write_family


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return write_family(tmp_path_factory.mktemp("family"))


@pytest.mark.parametrize("name", ["ar", "dflash", "ddtree"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_what_an_engine_holds(family, name, dtype):
    chosen = method(name)
    draft = None if name == "ar" else family.drafter
    engine = load_engine(family.target, name, draft=draft, dtype=dtype)
    context = 192
    sampling = Sampling(max_new_tokens=40, temperature=1.0)
    plan = engine.plan_for([sampling])
    slack = max(plan.rows, plan.block_size, plan.path) + 1
    engine.generate_batch([[1] * (context - slack - 40)] * 3, sampling)
    budget = memory_budget(
        family.target, draft, chosen, dtype=getattr(torch, dtype), context=context, batch=3
    )
    held = sum(
        tensor.nbytes for key, tensor in device_tensors(engine._state).items() if not key.startswith("law.")
    )
    assert engine._state.capacity == context
    assert budget.state == held
    parts = engine.parts
    assert budget.target == sum(weight.nbytes for weight in parts.target.parameters())
    drafter = 0 if draft is None else sum(weight.nbytes for weight in parts.drafter.parameters())
    assert budget.drafter == drafter
    assert budget.total == budget.target + budget.drafter + held + budget.round
    assert budget.round >= 3 * plan.rows * 2048 * 4


def test_the_context_is_one_that_the_models_take(family):
    def budget(context):
        return memory_budget(family.target, None, method("ar"), dtype=None, context=context, batch=1)

    assert budget(None).context == MAX_POSITIONS < USUAL
    with pytest.raises(ValueError, match="context: got 257 tokens, expected at most 256"):
        budget(MAX_POSITIONS + 1)
