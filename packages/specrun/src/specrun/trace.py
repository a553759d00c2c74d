"""A prompt in, its answer with every round laid open out: what was drafted, what the target thought of it, what was kept.

It looks between the rounds, so their times are those of any other generation. It knows no page.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from speccorrect.law import probabilities
from specrun.clock import StageClock
from specrun.config import Sampling
from specrun.engine import Engine, Generation
from specrun.products import Round

CHOICES = 4
"""The target's most probable tokens that are kept for every node."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A token under the target's law, temperature and filters included."""

    token_id: int
    target: float  # its probability


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedNode:
    """One verified row: the anchor, or a drafted token."""

    token_id: int
    parent: int  # index among the nodes; 0 for the anchor itself
    depth: int  # 0 for the anchor
    draft: float  # probability behind its parent, as the draft ranked it; 1 for the anchor
    path: float  # the product of these along its path
    target: float  # what the target's law gives it behind its parent; 1 for the anchor
    accepted: bool
    choices: tuple[Choice, ...]  # what the target would say behind it, most probable first


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRound:
    """One verification pass."""

    first: int  # index of its first token in the answer
    kept: int  # tokens that it added; fewer than accepted + 1 where a stop or the budget cut it
    accepted: int  # drafted tokens that the target took
    bonus: Choice  # the target's own token behind the accepted path
    nodes: tuple[TracedNode, ...]  # parents before children
    stage_seconds: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A generation and its rounds; the answer's first token comes from the prompt and belongs to none of them."""

    prompt_ids: list[int]
    generation: Generation
    rounds: tuple[TracedRound, ...]


def trace(engine: Engine, prompt: str | Sequence[int], sampling: Sampling) -> Trace:
    """Decode one prompt and keep what every round did. The answer is the one that `Engine.generate` gives."""
    clock = StageClock(engine.parts.target.embedding.device)
    ids = engine.prompt_ids(prompt)
    latest: list[Round] = []
    rounds: list[TracedRound] = []
    before: dict[str, float] = {}
    first = 0
    for piece in engine.stream(ids, sampling, clock=clock, watch=latest.append):
        if latest:
            spent = clock.seconds()
            rounds.append(
                _round(
                    latest.pop(),
                    sampling,
                    first=first,
                    kept=len(piece.token_ids),
                    stage_seconds={stage: after - before.get(stage, 0.0) for stage, after in spent.items()},
                )
            )
            before = spent
        first += len(piece.token_ids)
        if piece.generation is not None:
            piece.generation.stats.stage_seconds.update(before)
            return Trace(prompt_ids=ids, generation=piece.generation, rounds=tuple(rounds))
    raise AssertionError("the stream ended without a last piece")


def _round(
    one: Round, sampling: Sampling, *, first: int, kept: int, stage_seconds: dict[str, float]
) -> TracedRound:
    tree, verdict = one.tree, one.verdict
    # greedy decoding is certain of everything; the law at temperature 1 shows by how much it was
    temperature_B = torch.full_like(tree.score_BN[:, 0], sampling.temperature or 1.0)
    target_NV = probabilities(one.shaped_BNV, temperature_B)[0]
    best = target_NV.topk(min(CHOICES, target_NV.shape[1]), dim=-1)
    step_N = (tree.score_BN - tree.score_BN.gather(1, tree.parent_BN))[0].exp()
    path = verdict.path_BP[0, : int(verdict.count_B[0])].tolist()
    living = torch.nonzero(tree.valid_BN[0]).flatten().tolist()
    place = {node: index for index, node in enumerate(living)}
    parents, tokens = tree.parent_BN[0], tree.tokens_BN[0]
    nodes = [
        TracedNode(
            token_id=int(tokens[node]),
            parent=place[int(parents[node])],
            depth=int(tree.depth_BN[0, node]),
            draft=float(step_N[node]),
            path=float(tree.score_BN[0, node].exp()),
            target=float(target_NV[parents[node], tokens[node]]) if node else 1.0,
            accepted=node in path,
            choices=tuple(map(Choice, best.indices[node].tolist(), best.values[node].tolist())),
        )
        for node in living
    ]
    bonus = int(verdict.bonus_B[0])
    return TracedRound(
        first=first,
        kept=kept,
        accepted=len(path) - 1,
        bonus=Choice(bonus, float(target_NV[path[-1], bonus])),
        nodes=tuple(nodes),
        stage_seconds=stage_seconds,
    )
