"""The drafter's objective trains it alone, and its measured acceptance equals a plain draft-and-verify loop."""

import numpy as np
import torch

from specmodels.kv import RowsMemory
from spectrain.anchors import Anchors, draft_rows, make_blocks
from spectrain.data import Shard, pack
from spectrain.drafting import dflash_objective, features, greedy_acceptance
from spectrain.loop import Loop, LoopConfig
from spectrain.optim import MixedOptimiser, OptimiserConfig, Schedule
from spectrain.sampling import Request, sample_responses

from doubles.corpora import random_shard
from doubles.tiny import dflash_config, qwen3_config, tiny_drafter, tiny_target

CONFIG = qwen3_config(vocab_size=16)


def greedy_shard(target, documents: int = 6, longest: int = 24) -> Shard:
    prompts = [np.arange(index, index + 4) % 15 for index in range(documents)]
    requests = [Request(prompt.tolist(), 0.0) for prompt in prompts]
    answers = sample_responses(target, requests, end=15, longest=longest, generator=torch.Generator())
    texts = [[*request.prompt, *answer] for request, answer in zip(requests, answers, strict=True)]
    return Shard(
        tokens=np.array([token for text in texts for token in text], dtype=np.uint16),
        offsets=np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64),
        prompt_lengths=np.full(documents, 4, dtype=np.int32),
        domains=(np.arange(documents) % 2).astype(np.uint8),
    )


def trained_pair(folder, steps: int = 60):
    """A pair in which the drafter is right now and then: neither always nor never."""
    target = tiny_target(CONFIG)
    drafter = tiny_drafter(CONFIG, dflash_config(CONFIG, mask_token_id=14)).requires_grad_(requires_grad=True)
    shard = greedy_shard(target)
    batch = pack(shard, [[index] for index in range(len(shard))], 30)
    run = Loop(
        model=drafter,
        optimiser=MixedOptimiser([drafter], OptimiserConfig(matrix_lr=0.02, other_lr=1e-2)),
        schedule=Schedule(steps=steps, warmup=2),
        config=LoopConfig(seed=0),
        folder=folder,
        batch=lambda number: batch,
        objective=dflash_objective(target, drafter, anchors=8, gamma=4.0, compiled=False),
    )
    run.run()
    return target, drafter, shard


def test_acceptance_equals_a_draft_and_verify_loop(tmp_path):
    target, drafter, shard = trained_pair(tmp_path)
    found = greedy_acceptance(target, drafter, shard, ("even", "odd"))
    size = drafter.config.block_size
    counts = {"even": [0, 0], "odd": [0, 0]}
    for index in range(len(shard)):
        text = [int(token) for token in shard.document(index)]
        committed = text[:5]  # prompt and the first token, which the prefill yields
        rounds = 0
        while len(committed) < len(text):
            batch = pack(shard, [[index]], len(text))
            place = torch.tensor([[len(committed) - 1]])
            blocks = make_blocks(
                batch, Anchors(place, torch.ones_like(place, dtype=torch.bool)), drafter.config
            )
            hidden = draft_rows(
                drafter, features(target, drafter, batch), target.embed(blocks.token_BQ), blocks, batch
            )
            draft = drafter.logits(hidden, target.head_VD).argmax(-1)[0, 1:].tolist()
            ids = torch.tensor([committed + draft])
            out = target(ids, torch.arange(ids.shape[1])[None], RowsMemory())
            best = target.logits(out.hidden_BQD).argmax(-1)[0].tolist()
            right = 0
            while right < size - 1 and draft[right] == best[len(committed) - 1 + right]:
                right += 1
            committed += [*draft[:right], best[len(committed) - 1 + right]]
            rounds += 1
        assert committed[: len(text)] == text
        count = counts["odd" if index % 2 else "even"]
        count[0] += len(text) - 5
        count[1] += rounds
    assert {name: [one.tokens, one.rounds] for name, one in found.items()} == counts
    per_round = sum(one.tokens for one in found.values()) / sum(one.rounds for one in found.values())
    assert 1.2 < per_round < size - 0.5, (
        "the pair is too good or too bad to tell a wrong count from a right one"
    )


def test_only_the_drafter_learns(tmp_path):
    target, drafter = tiny_target(CONFIG), tiny_drafter(CONFIG).requires_grad_(requires_grad=True)
    batch = pack(random_shard(4, vocab=14), [[0, 1], [2, 3]], 50)
    objective = dflash_objective(target, drafter, anchors=4, gamma=4.0, compiled=False)
    objective(batch, torch.Generator().manual_seed(0)).loss.backward()
    assert all(parameter.grad is None for parameter in target.parameters())
    assert all(float(parameter.grad.abs().sum()) > 0 for parameter in drafter.parameters())


def test_the_same_generator_gives_the_same_loss():
    target, drafter = tiny_target(CONFIG), tiny_drafter(CONFIG)
    batch = pack(random_shard(4, vocab=14), [[0, 1], [2, 3]], 50)
    plain = dflash_objective(target, drafter, anchors=4, gamma=4.0, compiled=False)
    chunked = dflash_objective(target, drafter, anchors=4, gamma=4.0, compiled=False, chunk=5)
    losses = [
        float(one(batch, torch.Generator().manual_seed(seed)).loss)
        for one, seed in ((plain, 0), (plain, 0), (chunked, 0), (plain, 1))
    ]
    assert losses[0] == losses[1]
    torch.testing.assert_close(losses[2], losses[0], rtol=1e-6, atol=0)
    assert losses[3] != losses[0]
