"""No length policy changes the text: the ids of plain decoding under *match*, the law under *reject*.

The law is summed up exactly, over all drafts of a small vocabulary. Rules that read a drawn token, or a confidence that
hangs on one, have to fail the same sum.
"""

import itertools
from dataclasses import dataclass
from functools import cache

import pytest
import torch

from speccorrect.length_head import LengthHead
from speccorrect.policies.measured import Measured
from speccorrect.policies.threshold import Threshold
from speccorrect.policy import Costs, length_policy, policy_specs
from speccorrect.products import Candidates, Proposal
from speccorrect.tree import chain_tree
from specrun import DraftOptions, Sampling, method
from specrun import plan as plan_module
from specrun.costs import CostTable
from specrun.products import Grown
from specrun.stages.trim import look
from specrun.state import allocate
from specrun.step import step

from doubles.drafters import mixed
from doubles.engines import (
    ALL_METHODS,
    CHAINS,
    crowd,
    engine_for,
    scripted_engine,
    small_drafter,
    small_target,
)
from reference.chi_square import distance
from reference.plain import continuation, cut, joint_law

POLICIES = tuple(policy_specs())
LAWS = ({}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 1.0})
REQUESTS = [
    (
        [3 + index, 7, index],
        Sampling(max_new_tokens=9 + index % 4, seed=index % 2, stop_ids=(), **LAWS[index % 3]),
    )
    for index in range(9)
]
SPARE = 8

STEEP = CostTable(
    batch=1,
    contexts=(64,),
    widths=(1, 3, 4, 8, 40),
    round=((3.0, 3.2, 4.0, 4.2, 9.0),),
    plain=(1.0,),
    stages={},
)
"""Prices with a step, at which policies end in different places."""


@cache
def target():
    return small_target(dtype=torch.float64)


@cache
def expected():
    return [
        continuation(target(), prompt, sampling, request=index, length=sampling.max_new_tokens + SPARE)
        for index, (prompt, sampling) in enumerate(REQUESTS)
    ]


def parts():
    torch.manual_seed(5)
    head = LengthHead(target().config.hidden_size, width=7).double()
    return {"length_head": head.requires_grad_(requires_grad=False), "costs": STEEP}


def widths(engine, count=9):
    """Rows per round of the first requests, whose answers have to be the plain ones."""
    prompts, samplings = zip(*REQUESTS[:count], strict=True)
    answers = engine.generate_batch(prompts, samplings)
    for answer, sampling, plain in zip(answers, samplings, expected()[:count], strict=True):
        assert answer.token_ids == cut(plain.tokens, sampling.max_new_tokens)[0]
    return {answer.stats.verified_rows / answer.stats.rounds for answer in answers}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", [name for name in ALL_METHODS if name != "ar"])
def test_every_policy_gives_the_plain_text_with_every_method(name, policy):
    budget = 12 if method(name).growth == "tree" else None
    options = DraftOptions(policy=policy, tree_budget=budget)
    engine = engine_for(name, target(), small_drafter(target()), options=options, **parts())
    widths(engine, len(LAWS))


@dataclass(frozen=True)
class Erratic:
    """Rows without reason, another number in every round and for every request."""

    sequential, priced, evidence = True, False, "corrected"

    def rows(self, outlook, costs):
        mess = (outlook.reach_BM.double().sum(dim=1) * 1e9).long()
        return 1 + mess.remainder(outlook.nodes + 1)


@pytest.mark.parametrize("growth", ["chain", "tree"])
@pytest.mark.parametrize("policy", [*POLICIES, "erratic"])
def test_drafts_that_are_often_right_are_cut_without_a_trace(policy, growth, monkeypatch):
    if policy == "erratic":
        monkeypatch.setattr(plan_module, "length_policy", lambda text: Erratic())
    scripts = [prompt + plain.tokens for (prompt, _), plain in zip(REQUESTS, expected(), strict=True)]
    options = DraftOptions(policy=policy, tree_budget=14 if growth == "tree" else None)
    engine = scripted_engine(growth, target(), mixed, scripts, options=options, **parts())
    seen = widths(engine)
    if policy in {"measured", "erratic"}:
        assert len(seen) > 1, "it never chose"


# The law under reject, summed over every draft of SLOTS tokens.

VOCAB, SLOTS = 2, 2
DRAFTS = list(itertools.product(range(VOCAB), repeat=SLOTS))


def table(seed, scale=1.0):
    """Probabilities of the next token behind every path of up to SLOTS tokens."""
    generator = torch.Generator().manual_seed(seed)
    return {
        path: torch.softmax(torch.randn(VOCAB, generator=generator, dtype=torch.float64) * scale, dim=0)
        for length in range(SLOTS + 1)
        for path in itertools.product(range(VOCAB), repeat=length)
    }


def drafted(q, marginal, path):
    """A chain that was drawn from the conditional rows q, over a drafter's marginals."""
    tokens = torch.tensor([path])
    base = torch.stack([row.log() for row in marginal])[None].float()
    candidates = Candidates(ids_BKC=None, base_BKC=base, lse_BK=base.logsumexp(dim=-1))
    scores = torch.stack([q[path[:slot]].log() for slot in range(SLOTS)])[None].float()
    return Proposal(tokens_BK=tokens, choice_BK=tokens, scores_BKC=scores, candidates=candidates)


@cache
def idle_state():
    return allocate(target(), None, batch=1, capacity=8, path=SLOTS + 1, penalties=False)


def rows_of(policy, costs):
    """The product's own way from a proposal to a number of rows."""

    def rows(proposal):
        grown = Grown(chain_tree(torch.tensor([0]), proposal), proposal)
        hidden = torch.zeros(1, SLOTS + 1, 1)
        sight = look(idle_state(), grown, policy, accept="reject", head=None, hidden_BRD=hidden)
        return int(policy.rows(sight.outlook, costs))

    return rows


def emitted_law(p, q, marginal, rows):
    """Exact probabilities of the first SLOTS + 1 emitted tokens."""
    law = dict.fromkeys(itertools.product(range(VOCAB), repeat=SLOTS + 1), 0.0)

    def plainly(path, weight):
        if len(path) == SLOTS + 1:
            law[path] += weight
            return
        for token in range(VOCAB):
            plainly((*path, token), weight * float(p[path][token]))

    for draft in DRAFTS:
        kept = rows(drafted(q, marginal, draft)) - 1
        weight, path = 1.0, ()
        for slot in range(SLOTS):
            weight *= float(q[draft[:slot]][draft[slot]])
        for slot in range(kept):
            token, p_row, q_row = draft[slot], p[path], q[path]
            passed = min(1.0, float(p_row[token] / q_row[token]))
            rest = (p_row - q_row).clamp(min=0)
            if passed < 1:
                for other in range(VOCAB):
                    plainly((*path, other), weight * (1 - passed) * float(rest[other] / rest.sum()))
            weight, path = weight * passed, (*path, token)
        for token in range(VOCAB):
            plainly((*path, token), weight * float(p[path][token]))
    return law


def joint(p):
    law = {}
    for path in itertools.product(range(VOCAB), repeat=SLOTS + 1):
        law[path] = 1.0
        for slot in range(SLOTS + 1):
            law[path] *= float(p[path[:slot]][path[slot]])
    return law


def distance_of(law, p):
    exact = joint(p)
    assert sum(law.values()) == pytest.approx(1.0)
    return max(abs(law[path] - exact[path]) for path in exact)


APPENDIX = Costs(seconds_T=1 / torch.tensor([1.0, 0.5, 0.45]))
"""The adversarial prices of DSpark's appendix: two drafts pay where the second is sure, one draft never pays."""

Q = {
    (): torch.tensor([0.8, 0.2], dtype=torch.float64),
    (0,): torch.tensor([0.9, 0.1], dtype=torch.float64),
    (1,): torch.tensor([0.5, 0.5], dtype=torch.float64),
}
"""The second slot's confidence hangs on the first token: 0.9 behind token 0, 0.5 behind token 1."""

RULES = [length_policy(text) for text in ("fixed", "fixed=2", "threshold=0.7", "libraspec=0.9")] + [
    length_policy(name) for name in ("dspark", "caddtree", "measured")
]


@pytest.mark.parametrize("policy", RULES, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_under_reject_the_law_stays_exact(policy, seed):
    p, marginal = table(seed), [Q[()], torch.tensor([0.86, 0.14], dtype=torch.float64)]
    for costs in (APPENDIX, Costs(seconds_T=torch.tensor([1.0, 1.7, 1.9]))):
        assert distance_of(emitted_law(p, Q, marginal, rows_of(policy, costs)), p) < 1e-7
        other = table(seed + 10, scale=2.0)
        assert distance_of(emitted_law(p, other, marginal, rows_of(policy, costs)), p) < 1e-7


def test_reading_the_drawn_token_gives_55_for_50():
    """Verify a token only if its own probability is at least one half, else draw from the target."""
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    sure = torch.tensor([0.9, 0.1], dtype=torch.float64)
    p, q = dict.fromkeys(table(0), half), dict.fromkeys(table(0), sure)

    def forbidden(proposal):
        drawn = proposal.scores_BKC.gather(-1, proposal.choice_BK[..., None])
        return 1 + int((drawn.exp() >= 0.5).squeeze(-1).cumprod(dim=-1).sum())

    law = emitted_law(p, q, [sure, sure], forbidden)
    assert sum(weight for path, weight in law.items() if path[0] == 0) == pytest.approx(0.55)
    # the rule that the protocol can express keeps or drops both tokens alike
    allowed = rows_of(Threshold(0.5), APPENDIX)
    assert distance_of(emitted_law(p, q, [sure, sure], allowed), p) < 1e-7


class Leaky(Measured):
    """The comparison of all lengths, posing as a rule that does not look ahead."""

    sequential = True


def test_comparing_all_lengths_on_a_confidence_that_hangs_on_the_draw_is_caught():
    marginal = [Q[()], torch.tensor([0.86, 0.14], dtype=torch.float64)]
    worst = [
        max(
            distance_of(emitted_law(table(seed), Q, marginal, rows_of(policy, APPENDIX)), table(seed))
            for seed in range(3)
        )
        for policy in (Leaky(), Measured())
    ]
    assert worst[0] > 5e-3
    assert worst[1] < 1e-7


# The same through the whole engine, as a crowd of equal requests.

FLAT, PROMPT, CAPACITY, LIKELY = 6, [2, 4], 24, 3.5


@cache
def flat_target():
    model = small_target(vocab_size=FLAT, dtype=torch.float32, seed=3)
    model.untied_head.weight.mul_(0.4)
    return model


@pytest.mark.parametrize("policy", ["fixed=3", "threshold=0.35", "measured"])
@pytest.mark.parametrize("name", ["dflash", next(name for name in CHAINS if name != "dflash")])
@torch.no_grad()
def test_a_crowd_under_reject_has_the_law(name, policy):
    law = Sampling(temperature=1.0, seed=1, max_new_tokens=4)
    options = DraftOptions(accept="reject", draft_temperature=1.0, policy=policy)
    engine = engine_for(
        name, flat_target(), small_drafter(flat_target(), block_size=4), options=options, costs=STEEP
    )
    state = crowd(engine, PROMPT, law, 2000, capacity=CAPACITY)
    plan = engine.plan_for([law])
    while not bool(state.done_B.all()):
        step(state, engine.parts, plan, span=CAPACITY)
    start = len(PROMPT)
    drawn = [tuple(row) for row in state.tokens_BT[:, start + 1 : start + 4].tolist()]
    first = int(state.tokens_BT[0, start])
    assert distance(drawn, joint_law(flat_target(), PROMPT, [first], law, 3)) < LIKELY
