"""Whole engines of tiny random models, and crowds of equal requests for tests of a law."""

import torch

from speccorrect.registry import corrector_spec
from speccorrect.source import HeadShape
from specrun.config import Sampling
from specrun.engine import Engine
from specrun.loop import Request, decode
from specrun.methods import method, methods
from specrun.stages.prefill import prefill
from specrun.state import DecodeState, allocate
from specrun.text import TextStream

from doubles.blocks import randomise
from doubles.drafters import Rule, Scripted
from doubles.tiny import dflash_config, qwen3_config, tiny_drafter, tiny_target

ALL_METHODS = tuple(methods())
CHAINS = tuple(name for name, item in methods().items() if item.growth == "chain")
TREES = tuple(name for name, item in methods().items() if item.growth == "tree")
SIZES = {"ddtree": {"tree_budget": 9}, "dflash": {}}


def small_target(*, dtype=torch.float64, seed=0, **changes):
    """Two layers and an untied head, whose greedy text is livelier than a tied one's."""
    config = {"vocab_size": 31, "num_layers": 2, "tie_embeddings": False} | changes
    return tiny_target(qwen3_config(**config), seed=seed, dtype=dtype)


def small_drafter(target, *, dtype=None, **changes):
    """One full layer that taps both layers of the target."""
    changes = {"target_layers": (0, 1), "max_positions": target.config.max_positions} | changes
    config = dflash_config(target.config, **changes)
    return tiny_drafter(target.config, config, dtype=target.embedding.dtype if dtype is None else dtype)


def head_for(name, target, drafter, *, seed=1):
    """A head with random weights, so that no part of it is without effect."""
    config = drafter.config
    shape = HeadShape(
        hidden_size=config.hidden_size,
        vocab_size=target.config.vocab_size,
        block_size=config.block_size,
        shifted=config.shifted,
    )
    head = randomise(corrector_spec(name).new(shape), seed)
    return head.to(target.embedding.dtype).requires_grad_(requires_grad=False)


def engine_for(name, target, drafter=None, *, options=None, **parts) -> Engine:
    """An engine for any method over given models; a missing drafter is made."""
    chosen = method(name)
    if chosen.growth == "plain":
        return Engine(target, chosen, options=options, **parts)
    drafter = small_drafter(target) if drafter is None else drafter
    head = head_for(chosen.corrector, target, drafter)
    return Engine(target, chosen, drafter=drafter, corrector=head, options=options, **parts)


def scripted_engine(growth, target, rule: Rule, scripts, drafter=None, *, options=None, **parts) -> Engine:
    """A chain or tree engine whose drafts follow a rule."""

    def state() -> DecodeState:
        assert engine._state is not None
        return engine._state

    head = Scripted(rule, scripts, state)
    drafter = small_drafter(target) if drafter is None else drafter
    chosen = method({"chain": "dflash", "tree": "ddtree"}[growth])
    engine = Engine(target, chosen, drafter=drafter, corrector=head, options=options, **parts)
    return engine


def run_as(engine: Engine, prompt, sampling: Sampling, request: int):
    """One request by itself, under the number that it would have as the member of a batch."""
    plan = engine.plan_for([sampling])
    state = engine._buffers(1, len(prompt) + sampling.max_new_tokens, plan)
    text = None if engine.tokenizer is None else TextStream(engine.tokenizer, sampling.stop)
    one = Request(
        index=request, prompt=list(prompt), sampling=sampling, stop_ids=sampling.stop_ids or (), text=text
    )
    for _ in decode(state, engine.parts, plan, [one]):
        pass
    return one


def crowd(engine: Engine, prompt, sampling: Sampling, count: int, *, capacity: int) -> DecodeState:
    """A state of `count` rows behind one prefill: equal prompts and first tokens, a request number each."""
    plan = engine.plan_for([sampling])
    drafter = engine.parts.drafter

    def fresh(batch: int) -> DecodeState:
        return allocate(
            engine.parts.target,
            drafter,
            batch=batch,
            capacity=capacity,
            path=plan.path,
            penalties=plan.law.penalties,
        )

    one, many = fresh(1), fresh(count)
    one.admit(0, sampling, sampling.stop_ids or (), 0)
    prefill(one, engine.parts.target, drafter, 0, torch.tensor(prompt), plan.law)
    for name, tensor in device_tensors(many).items():
        single = device_tensors(one)[name]
        tensor.copy_(single.expand_as(tensor))
    many.request_B.copy_(torch.arange(count))
    return many


def device_tensors(state: DecodeState) -> dict[str, torch.Tensor]:
    """All buffers of a state by name, those of caches and law as `name.part`."""
    found = {}
    for name in DecodeState.__dataclass_fields__:
        value = getattr(state, name)
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif name == "law":
            found |= {f"law.{part}": getattr(value, part) for part in type(value).__dataclass_fields__}
        elif value is not None:
            found |= {f"{name}.key": value.key_LBGTH, f"{name}.value": value.value_LBGTH}
    return found
