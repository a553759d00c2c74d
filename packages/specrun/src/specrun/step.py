"""One round: draft, correct, grow, verify, accept, commit, composed. Reads and writes nothing but the state."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from speccorrect.accept import match, reject, target_draws, target_noise
from speccorrect.contract import Corrector
from speccorrect.couple import Coupling
from speccorrect.grow import TreeShape
from speccorrect.law import LawPlan
from speccorrect.length_head import LengthHead
from speccorrect.policy import LengthPolicy
from speccorrect.tree import path_tree
from specmodels.dflash import DFlash
from specmodels.qwen3 import Qwen3
from specrun.config import AcceptRule
from specrun.costs import NO_COSTS, CostTable
from specrun.products import Committed, Grown, Round
from specrun.stages.commit import commit
from specrun.stages.correct import correct
from specrun.stages.draft import draft
from specrun.stages.grow import draft_noise, grow
from specrun.stages.trim import Sight, learn, look, trim
from specrun.stages.verify import verify
from specrun.state import DecodeState

Clock = Callable[[str], None]
"""Called behind every stage with its name."""

Watch = Callable[[Round], None]
"""Called behind every round with what it proposed and what became of it."""


class Step(Protocol):
    """A round, as `step` runs it or as `specrun.graphs` makes it."""

    def __call__(
        self,
        state: DecodeState,
        parts: "Parts",
        plan: "RoundPlan",
        *,
        span: int,
        clock: Clock = ...,
        watch: Watch | None = ...,
    ) -> Committed:
        """Advance every row by one round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The models of an engine; plain decoding has no drafter."""

    target: Qwen3
    drafter: DFlash | None = None
    corrector: Corrector[Any] | None = None
    coupling: Coupling | None = None  # how trees trust the target's noise; None ignores it
    length_head: LengthHead | None = None  # of an AdaFlash drafter
    costs: CostTable | None = None  # of a round on this machine, for the policies that read them


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """Everything about a round that is fixed while a batch runs: what a captured graph would bake in."""

    block_size: int  # rows that the drafter fills, anchor included; 1 drafts nothing
    slots: int  # drafted tokens per path
    shape: TreeShape | None  # None grows a chain
    candidates: int | None
    accept: AcceptRule
    draft_temperature: float
    law: LawPlan
    policy: LengthPolicy | None = None  # how much of a proposal is verified; None is all of it

    @property
    def rows(self) -> int:
        """Rows of one verification, the anchor included, at most."""
        return 1 + (self.slots if self.shape is None else self.shape.nodes)

    @property
    def path(self) -> int:
        """Rows of the longest accepted path."""
        return 1 + self.slots


def plain_plan(plan: RoundPlan) -> RoundPlan:
    """The same batch, decoding one token per pass."""
    return replace(plan, block_size=1, slots=0, shape=None, accept="match", policy=None)


def no_clock(stage: str) -> None:
    """Measure nothing."""
    del stage


@torch.no_grad()
def step(
    state: DecodeState,
    parts: Parts,
    plan: RoundPlan,
    *,
    span: int,
    clock: Clock = no_clock,
    watch: Watch | None = None,
) -> Committed:
    """Advance every row by one round. No cache row at or behind `span` is in use before or after it."""
    noise_BLV = None
    if plan.law.noise and plan.accept == "match":
        # in the precision of the logits it is added to
        dtype = torch.promote_types(parts.target.embedding.dtype, torch.float32)
        noise_BLV = target_noise(state.keys, plan.path, parts.target.config.vocab_size, dtype)
    grown, sight = _propose(state, parts, plan, noise_BLV, span, clock)
    if sight is not None:
        grown, sight = trim(grown, sight, _width(sight, parts, plan, span))
        clock("trim")
    tree = grown.tree
    taps = () if parts.drafter is None else parts.drafter.config.target_layers
    verified = verify(state, parts.target, tree, taps=taps, plan=plan.law, span=span)
    clock("verify")
    temperature_B = state.law.temperature_B
    if plan.accept == "reject":
        assert grown.proposal is not None, "reject tests a chain"
        q_temperature_B = _draft_temperature(temperature_B, plan)
        verdict = reject(grown.proposal, verified.shaped_BNV, temperature_B, q_temperature_B, state.keys)
    else:
        draws_BN = target_draws(verified.shaped_BNV, tree.depth_BN, temperature_B, noise_BLV)
        verdict = match(tree, draws_BN)
    if sight is not None:
        learn(state, tree, sight, verdict)
    clock("accept")
    committed = commit(
        state,
        tree,
        verdict,
        verified.features_BNF,
        branches=plan.shape is not None,
        penalties=plan.law.penalties,
    )
    clock("commit")
    if watch is not None:
        watch(Round(tree, verified.shaped_BNV, verdict, committed))
    return committed


def _propose(
    state: DecodeState, parts: Parts, plan: RoundPlan, noise_BLV: Tensor | None, span: int, clock: Clock
) -> tuple[Grown, Sight | None]:
    """What could be verified, and what a length policy sees of it, where there is one."""
    if parts.drafter is None or parts.corrector is None or plan.slots == 0:
        return _anchor_alone(state), None
    block = draft(state, parts.target, parts.drafter, block_size=plan.block_size, span=span)
    clock("draft")
    shared_BKV = None
    if plan.shape is not None and parts.coupling is not None and noise_BLV is not None:
        shared_BKV = noise_BLV[:, : plan.slots] * state.law.temperature_B[:, None, None]
    prepared = correct(
        block, parts.target, parts.drafter, parts.corrector, candidates=plan.candidates, noise_BKV=shared_BKV
    )
    clock("correct")
    noise_BKC = None
    if shared_BKV is not None:
        ids = prepared.candidates.ids_BKC
        noise_BKC = shared_BKV if ids is None else shared_BKV.gather(-1, ids)
    elif plan.accept == "reject" and plan.law.noise:
        temperature_B = _draft_temperature(state.law.temperature_B, plan)
        noise_BKC = draft_noise(prepared.candidates, state.keys, temperature_B)
    grown = grow(
        parts.corrector,
        prepared,
        block.anchor_B,
        slots=plan.slots,
        shape=plan.shape,
        noise_BKC=noise_BKC,
        coupling=parts.coupling,
        judged=plan.policy is not None and plan.policy.evidence == "confidence",
    )
    clock("grow")
    if plan.policy is None:
        return grown, None
    head, hidden_BRD = parts.length_head, block.hidden_BRD
    return grown, look(state, grown, plan.policy, accept=plan.accept, head=head, hidden_BRD=hidden_BRD)


def _width(sight: Sight, parts: Parts, plan: RoundPlan, span: int) -> int:
    """Rows that the policy wants verified: the one number of a round that the host reads before its end."""
    assert plan.policy is not None, "a sight is for a policy"
    batch = sight.step_BM.shape[0]
    costs = NO_COSTS if parts.costs is None else parts.costs.at(span, plan.rows, batch, sight.step_BM.device)
    return int(plan.policy.rows(sight.outlook, costs).max())


def _anchor_alone(state: DecodeState) -> Grown:
    anchor_B = state.anchor_B()
    no_scores_BK = anchor_B.new_zeros(anchor_B.shape[0], 0, dtype=torch.float32)
    return Grown(path_tree(anchor_B[:, None], no_scores_BK), None)


def _draft_temperature(temperature_B: Tensor, plan: RoundPlan) -> Tensor:
    """Greedy rows draft greedily: their target accepts nothing but its own argmax."""
    return torch.where(temperature_B > 0, plan.draft_temperature, 0.0)
