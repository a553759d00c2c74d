"""Rows of a tree as the target sees them: each one exactly its own path, at the path's positions."""

import pytest
import torch

from speccorrect.law import LawPlan
from speccorrect.tree import build_tree
from specrun import Sampling
from specrun.stages.prefill import prefill
from specrun.stages.verify import verify
from specrun.state import allocate

from doubles.engines import small_drafter, small_target
from reference.plain import next_logits, penalised

PROMPTS = [[3, 1, 4], [2, 7, 1, 8, 2, 8]]
TOKENS = [4, 9, 4, 9, 11, 3, 0]
PARENTS = [
    0,
    0,
    0,
    2,
    1,
    3,
    0,
]  # the same token on two branches, and twice on one path; the last node is dead
PATHS = [[], [9], [4], [4, 9], [9, 11], [4, 9, 3]]
SAMPLING = Sampling(max_new_tokens=9, repetition_penalty=1.5, frequency_penalty=0.3, presence_penalty=0.2)
CLOSE = 1e-10  # float64 sums over other shapes, on logits of order 10


@torch.no_grad()
@pytest.mark.parametrize("penalties", [False, True])
def test_a_node_scores_what_its_path_alone_would(penalties):
    target = small_target()
    drafter = small_drafter(target)
    plan = LawPlan(filters=False, penalties=penalties, noise=False)
    state = allocate(target, drafter, batch=2, capacity=32, path=6, penalties=penalties)
    firsts = []
    for row, prompt in enumerate(PROMPTS):
        state.admit(row, SAMPLING, (), row)
        firsts.append(prefill(state, target, drafter, row, torch.tensor(prompt), plan)[0])
    # rows that no node may see
    for row, prompt in enumerate(PROMPTS):
        state.target_kv.key_LBGTH[:, row, :, len(prompt) :] = 1e30
        state.target_kv.value_LBGTH[:, row, :, len(prompt) :] = 1e30
    tokens = torch.tensor([[first, *TOKENS[1:]] for first in firsts])
    parents = torch.tensor([PARENTS] * 2)
    valid = torch.tensor([[True] * 6 + [False]] * 2)
    tree = build_tree(tokens, parents, valid, torch.zeros(2, 7), levels=3)
    taps = drafter.config.target_layers
    verified = verify(state, target, tree, taps=taps, plan=plan, span=32)
    for row, (prompt, first) in enumerate(zip(PROMPTS, firsts, strict=True)):
        for node, path in enumerate(PATHS):
            logits = next_logits(target, [*prompt, first, *path])
            if penalties:
                logits = penalised(logits, prompt, [first, *path], SAMPLING)
            expected = torch.tensor(logits, dtype=torch.float64)
            torch.testing.assert_close(verified.shaped_BNV[row, node], expected, rtol=0, atol=CLOSE)
    assert verified.features_BNF.shape == (2, 7, 2 * target.config.hidden_size)
    assert state.length_B.tolist() == [len(prompt) for prompt in PROMPTS]
