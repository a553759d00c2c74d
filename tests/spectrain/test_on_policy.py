"""The on-policy loop: lossless answers by the current drafter, hot swaps, and one result however often it is killed."""

import itertools

import pytest
import torch

from speccorrect.correctors.none import NoCorrector
from speccorrect.length_head import LengthHead
from specrun import DraftOptions, Engine, Sampling, load_engine, method
from spectrain.adaflash import accepted_lengths, adaflash_objective
from spectrain.anchors import anchor_candidates, sample_anchors
from spectrain.data import pack, read_shard
from spectrain.heads import Pair, save_pair
from spectrain.loop import Loop, LoopConfig
from spectrain.on_policy import OnPolicy, OnPolicyConfig
from spectrain.optim import GroupedOptimiser, MixedOptimiser, OptimiserConfig, Schedule
from spectrain.taught import teach

from doubles.corpora import random_shard
from doubles.family import write_family
from doubles.tiny import dflash_config, qwen3_config, tiny_drafter, tiny_target

TARGET = qwen3_config(vocab_size=16, num_layers=3)
PROMPTS = [[1 + place % 7, 3, place % 5] for place in range(10)]
CONFIG = OnPolicyConfig(
    prompts=4, buffer=2, updates=3, row=32, rows=2, max_new_tokens=12, temperature=0.8, seed=5
)


def drafter():
    return tiny_drafter(TARGET, dflash_config(TARGET, target_layers=(0, 1), mask_token_id=15))


def start(folder, steps=8):
    target, serving = tiny_target(TARGET), drafter()
    pair = Pair(drafter().requires_grad_(requires_grad=True), LengthHead(TARGET.hidden_size, 8))
    with torch.no_grad():
        for parameter in pair.head.parameters():
            parameter.fill_(0.05)
    engine = Engine(target, method("dflash"), drafter=serving, corrector=NoCorrector())
    policy = OnPolicy(engine, pair.drafter, PROMPTS, CONFIG, folder / "rounds")
    config = OptimiserConfig(matrix_lr=0.02, other_lr=1e-2)
    loop = Loop(
        model=pair,
        optimiser=GroupedOptimiser([MixedOptimiser([one], config) for one in (pair.drafter, pair.head)]),
        schedule=Schedule(steps=steps, warmup=1),
        config=LoopConfig(seed=0, checkpoint_every=2, log_every=1),
        folder=folder,
        batch=policy.batch,
        objective=adaflash_objective(target, pair, anchors=4, gamma=4.0),
    )
    return loop, policy, pair


def test_rounds_are_answered_losslessly_by_the_current_drafter(tmp_path):
    loop, policy, pair = start(tmp_path)
    seen = []
    answer = policy._answer

    def watched(place, folder):
        trained = {name: value.detach().clone() for name, value in pair.drafter.named_parameters()}
        answer(place, folder)
        serving = dict(policy.engine.parts.drafter.named_parameters())
        seen.append(all(torch.equal(serving[name], value) for name, value in trained.items()))
        seen.append(torch.equal(trained["fuse.weight"], drafter().fuse.weight) == (place == 0))

    policy._answer = watched
    loop.run()
    assert seen == [True] * 6  # eight steps are three rounds
    plain = policy.engine.plain()
    for place in range(3):
        shard = read_shard(tmp_path / "rounds" / f"{place:05d}", "train")
        prompts = [PROMPTS[(4 * place + i) % 10] for i in range(4)]
        sampling = Sampling(max_new_tokens=12, temperature=0.8, seed=5 + place)
        expected = plain.generate_batch(prompts, sampling)
        for index, (prompt, answer) in enumerate(zip(prompts, expected, strict=True)):
            assert shard.document(index).tolist() == [*prompt, *answer.token_ids]
    served = policy.served()
    assert [one.round for one in served] == [0, 1, 2]
    assert all(one.tokens >= one.rounds > 0 for one in served)
    # the last two rounds are the buffer
    assert len(policy._rows.shard) == 8


@pytest.mark.parametrize("at", ["answers", "rename", "step 4", "step 7"])
def test_a_killed_run_goes_on_to_the_same_result(tmp_path, monkeypatch, at):
    whole, policy, pair = start(tmp_path / "whole")
    whole.run()

    broken, dying, _ = start(tmp_path / "broken")
    made, batch, count = dying.engine.generate_batch, dying.batch, itertools.count()

    def generate(*arguments):
        answers = made(*arguments)
        if at == "answers" and next(count) == 1:
            raise KeyboardInterrupt
        return answers

    def numbered(number):
        found = batch(number)
        if at == f"step {number}" or (at == "rename" and number == 3):
            raise KeyboardInterrupt
        return found

    dying.engine.generate_batch, broken.batch = generate, numbered
    with pytest.raises(KeyboardInterrupt):
        broken.run()
    again, resumed, other = start(tmp_path / "broken")
    again.run(resume=True)
    for (name, one), two in zip(pair.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), name
    assert policy.served() == resumed.served()


def test_known_lengths_equal_a_loop():
    target, model = tiny_target(TARGET), drafter()
    batch = pack(random_shard(4, vocab=12, shortest=12, longest=20), [[0, 1], [2, 3]], 40)
    # answers of the drafter's own liking, so that some drafts are right
    places = sample_anchors(anchor_candidates(batch), 40, torch.Generator().manual_seed(0))
    drafts = teach(target, model, batch, places, distribution=False).base_MKV.argmax(-1).view(2, -1, 5)
    tokens = batch.token_BS.clone()
    for row in range(2):
        for place, kept in zip(range(0, 40, 3), itertools.cycle([True]), strict=False):
            if kept and place < places.place_BN.shape[1] and bool(places.kept_BN[row, place]):
                tokens[row, int(places.place_BN[row, place]) + 1] = drafts[row, place, 0]
    batch = batch._replace(token_BS=tokens)
    taught = teach(target, model, batch, places, distribution=False)
    accepted, known = accepted_lengths(taught)
    lengths, tellable = [], []
    for m in range(taught.label_MK.shape[0]):
        right, tell = 0, False
        for k in range(5):
            if not taught.trained_MK[m, k]:
                break
            if int(taught.base_MKV[m, k].argmax()) != int(taught.label_MK[m, k]):
                tell = True
                break
            right += 1
        tell = tell or right == 5
        lengths.append(right)
        tellable.append(tell)
    assert accepted.tolist() == lengths
    assert known.tolist() == tellable
    assert max(lengths) > 0
    assert not all(tellable)


def test_the_head_alone_learns_beside_a_drafter_as_it_is():
    target = tiny_target(TARGET)
    pair = Pair(drafter().requires_grad_(requires_grad=True), LengthHead(TARGET.hidden_size, 8))
    batch = pack(random_shard(4, vocab=12), [[0, 1], [2, 3]], 48)
    objective = adaflash_objective(target, pair, anchors=4, gamma=4.0, drafter_learns=False)
    objective(batch, torch.Generator().manual_seed(0)).loss.backward()
    assert all(parameter.grad is None for parameter in pair.drafter.parameters())
    assert all(parameter.grad is not None for parameter in pair.head.parameters())


def test_what_is_saved_decides_in_the_engine(tmp_path):
    family = write_family(tmp_path / "family")
    target = tiny_target(qwen3_config(vocab_size=2048, max_positions=256))
    model, head = tiny_drafter(target.config), LengthHead(32, 8)
    save_pair(
        model, "none", NoCorrector(), target.config, tmp_path / "run", dtype=torch.float32, length_head=head
    )
    engine = load_engine(
        family.target, "dflash", draft=tmp_path / "run", options=DraftOptions(policy="adaflash")
    )
    loaded = engine.parts.length_head
    assert all(torch.equal(loaded.state_dict()[name], value) for name, value in head.state_dict().items())


def test_too_few_prompts_are_refused(tmp_path):
    target = tiny_target(TARGET)
    engine = Engine(target, method("dflash"), drafter=drafter(), corrector=NoCorrector())
    with pytest.raises(ValueError, match="prompts: got 3, expected at least the 4 of a round"):
        OnPolicy(engine, drafter(), PROMPTS[:3], CONFIG, tmp_path)
