"""A method, a drafter and a user's options to the fixed plan of a round."""

from speccorrect.contract import Corrector
from speccorrect.grow import TreeShape
from speccorrect.law import LawPlan
from speccorrect.policy import length_policy
from specmodels.dflash import DFlashConfig
from specrun.config import AcceptRule, DraftOptions
from specrun.methods import Method
from specrun.step import RoundPlan

DEFAULT_DRAFT_TEMPERATURE = 0.5
"""Under rejection: over all domains, chains accept more at it than at 0.3 or at the target's own (docs/sampling.md)."""

MAX_TREE_BUDGET = 256

DEFAULT_COUPLE = 0.5
"""Trust of trees in the target's noise where no fitted table says better (docs/sampling.md)."""


def coupling_strength(method: Method, options: DraftOptions) -> float:
    """How far trees trust the target's noise where no fitted table says better; 0 ignores it."""
    if method.growth != "tree":
        if options.couple is not None:
            raise ValueError(
                f"couple: has no effect with method {method.name}, which grows no tree; use a tree method"
            )
        return 0.0
    if options.couple is not None:
        if not 0 <= options.couple <= 1:
            raise ValueError(
                f"couple: got {options.couple}, expected 0 (off) to 1 (full trust in the target's noise)"
            )
        return options.couple
    return DEFAULT_COUPLE


def round_plan(
    method: Method,
    options: DraftOptions,
    law: LawPlan,
    drafter: DFlashConfig | None,
    corrector: Corrector | None,  # type: ignore[type-arg]  # only its class-level numbers are read
) -> RoundPlan:
    """Settle every size of a round. An option that the method cannot honour is a ValueError."""
    _refuse_options_without_effect(method, options)
    policy = None if options.policy is None else length_policy(options.policy)
    if method.growth == "plain" or drafter is None:
        return RoundPlan(
            block_size=1, slots=0, shape=None, candidates=None, accept="match", draft_temperature=0.0, law=law
        )
    block_size = drafter.block_size if options.block_size is None else options.block_size
    smallest = 1 if drafter.shifted else 2
    if not smallest <= block_size <= drafter.block_size:
        raise ValueError(
            f"block size: got {block_size}, expected {smallest} to {drafter.block_size}, the size that the drafter was trained with"
        )
    slots = block_size if drafter.shifted else block_size - 1
    accept: AcceptRule = options.accept or "match"
    candidates = method.candidates
    shape = None
    if method.growth == "tree":
        budget = method.tree_budget if options.tree_budget is None else options.tree_budget
        shape = _tree_shape(method, budget)
        candidates = max(1, budget) if candidates is None else min(candidates, max(1, budget))
    if corrector is not None and corrector.support is not None:
        candidates = corrector.support if candidates is None else min(candidates, corrector.support)
    temperature = (
        DEFAULT_DRAFT_TEMPERATURE if options.draft_temperature is None else options.draft_temperature
    )
    if temperature < 0:
        raise ValueError(
            f"draft temperature: got {temperature}, expected at least 0 (0 drafts the most probable token)"
        )
    return RoundPlan(
        block_size=block_size,
        slots=slots,
        shape=shape,
        candidates=candidates,
        accept=accept,
        draft_temperature=temperature if accept == "reject" else 0.0,
        law=law,
        policy=policy,
    )


def _tree_shape(method: Method, budget: int) -> TreeShape:
    if not 0 <= budget <= MAX_TREE_BUDGET:
        raise ValueError(f"tree budget: got {budget}, expected 0 to {MAX_TREE_BUDGET}")
    lanes = max(1, budget if method.lanes is None else min(method.lanes, budget))
    return TreeShape(
        nodes=budget,
        lanes=lanes,
        ledger=max(lanes, budget),
        branches=method.branches,
        depth_bonus=method.depth_bonus,
    )


def _refuse_options_without_effect(method: Method, options: DraftOptions) -> None:
    if method.growth == "plain":
        for name in ("block_size", "tree_budget", "accept", "draft_temperature", "policy"):
            if getattr(options, name) is not None:
                raise ValueError(
                    f"{name.replace('_', ' ')}: has no effect with method {method.name}, which drafts nothing"
                )
    if method.growth == "chain" and options.tree_budget is not None:
        raise ValueError(
            f"tree budget: has no effect with method {method.name}, which grows a chain; use a tree method"
        )
    if method.growth == "tree" and options.accept == "reject":
        raise ValueError(f"accept: method {method.name} grows a tree, which only the rule match is exact for")
    if options.draft_temperature is not None and options.accept != "reject":
        raise ValueError(
            "draft temperature: has no effect unless chains are accepted by reject (--accept reject)"
        )
