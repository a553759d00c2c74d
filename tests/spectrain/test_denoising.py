"""What a block-diffusion model learns from: which rows there are, what they see, what is hidden and what it weighs."""

import numpy as np
import pytest
import torch

from specmodels.kv import RowsMemory
from specmodels.llada2 import block_causal
from spectrain.data import Shard
from spectrain.denoising import (
    BlockStages,
    DenoisingRows,
    Noise,
    corrupted,
    denoising_mask,
    denoising_objective,
    own_guesses,
)

from doubles.tiny import tiny_llada2

MASK, END = 52, 1
ALWAYS = BlockStages(((float("inf"), {4: 1}),))


def shard(*documents: tuple[int, int], seed: int = 0) -> Shard:
    """Documents of (tokens, prompt tokens)."""
    generator = np.random.default_rng(seed)
    lengths = [length for length, _ in documents]
    return Shard(
        tokens=generator.integers(2, 50, sum(lengths)).astype(np.uint16),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        prompt_lengths=np.array([prompt for _, prompt in documents], dtype=np.int32),
        domains=np.zeros(len(documents), dtype=np.uint8),
    )


def rows(found: Shard, batch: int = 1, stages: BlockStages = ALWAYS) -> DenoisingRows:
    return DenoisingRows(found, batch=batch, seed=0, fill=8, end_id=END, stages=stages)


def test_two_copies_of_a_document():
    """10 tokens, 5 of them prompt, fill up to 16: blocks of 4 from the prompt's last one on are noisy."""
    found = shard((10, 5))
    batch = rows(found).lay_out([0], 4)
    ids = found.document(0).tolist() + [END] * 6
    assert batch.position_BS[0].tolist() == [*range(12), *range(4, 16)]
    assert batch.token_BS[0].tolist() == ids[:12] + ids[4:]
    assert batch.noisy_BS[0].tolist() == [False] * 12 + [True] * 12
    assert batch.answer_BS[0].tolist() == [False] * 13 + [True] * 11


def test_documents_of_two_lengths_are_padded():
    batch = rows(shard((10, 5), (7, 2))).lay_out([0, 1], 4)
    assert batch.position_BS[1].tolist() == [*range(4), *range(8)] + [-1] * 12
    assert not batch.answer_BS[1, 12:].any()


@pytest.mark.parametrize("block", [1, 4, 1024])
def test_noisy_rows_see_what_decoding_sees(block):
    """The logits of every noisy block equal those of a text whose earlier blocks are clean and which ends with it."""
    model = tiny_llada2(dtype=torch.float64)
    found = shard((22, 7), (13, 3))
    batch = rows(found).lay_out([0, 1], block)
    seen_BS = corrupted(batch, Noise(), MASK, torch.Generator().manual_seed(1))
    hidden = model(seen_BS, batch.position_BS.clamp_min(0), RowsMemory(denoising_mask(batch)))
    compared = 0
    for row, length in ((0, 24), (1, 16)):
        ids = found.document(row).tolist()
        ids += [END] * (length - len(ids))
        for start in range(0, length, block):
            here = batch.noisy_BS[row] & (batch.position_BS[row] // block == start // block)
            if not here.any():
                continue
            text = torch.tensor([ids[:start] + seen_BS[row, here].tolist()])
            place = torch.arange(text.shape[1])[None]
            alone = model(text, place, RowsMemory(block_causal(place, place, block)))
            torch.testing.assert_close(hidden[row, here], alone[0, start:], atol=1e-9, rtol=0)
            compared += 1
    assert compared > 1


def test_clean_rows_see_no_noise():
    batch = rows(shard((22, 7))).lay_out([0], 4)
    mask = denoising_mask(batch)[0]
    clean = ~batch.noisy_BS[0]
    assert not mask[clean][:, batch.noisy_BS[0]].any()
    assert torch.equal(
        mask[clean][:, clean], block_causal(batch.position_BS[:, clean], batch.position_BS[:, clean], 4)[0]
    )


def test_noise_falls_on_answers_alone_and_at_its_rates():
    batch = rows(shard(*[(60, 12)] * 40)).lay_out(list(range(40)), 4)
    hidden, wrong = [], []
    for seed in range(6):
        seen_BS = corrupted(
            batch, Noise(wrong=0.4, nothing_known=0.25), MASK, torch.Generator().manual_seed(seed)
        )
        assert torch.equal(seen_BS[~batch.answer_BS], batch.token_BS[~batch.answer_BS])
        hidden.append((seen_BS == MASK)[batch.answer_BS].float().mean())
        visible = batch.answer_BS & (seen_BS != MASK)
        wrong.append((seen_BS != batch.token_BS)[visible].float().mean())
    # a quarter of the blocks is masked as a whole and the others by half; a fifth of the rest is replaced, by
    # chance sometimes with itself: of 40 documents' tokens, one in five is an end
    assert abs(torch.stack(hidden).mean() - (0.25 + 0.75 * 0.5)) < 0.03
    assert abs(torch.stack(wrong).mean() - 0.2) < 0.03


def test_masks_come_at_one_rate_per_block():
    batch = rows(shard(*[(64, 8)] * 30)).lay_out(list(range(30)), 32)
    seen_BS = corrupted(batch, Noise(), MASK, torch.Generator().manual_seed(0))
    shares = []
    for row in range(30):
        here = batch.answer_BS[row] & (batch.position_BS[row] >= 32)
        shares.append((seen_BS[row, here] == MASK).float().mean())
    # one rate for all blocks would leave shares within .18 of a half
    assert torch.stack(shares).std() > 0.25


def test_own_guesses_replace_masks_alone():
    batch = rows(shard((22, 7))).lay_out([0], 8)
    seen_BS = batch.token_BS.masked_fill(batch.answer_BS & (batch.position_BS % 2 == 0), MASK)
    masked_N = (seen_BS == MASK)[batch.answer_BS]
    logits_NV = torch.full((len(masked_N), 53), -20.0)
    logits_NV[:, MASK] = 50.0  # a mask is never a guess
    logits_NV[:, 9] = 20.0
    replaced = set()
    for seed in range(30):
        guessed = own_guesses(batch, seen_BS, logits_NV, MASK, torch.Generator().manual_seed(seed))
        assert torch.equal(guessed[~batch.answer_BS], seen_BS[~batch.answer_BS])
        found_N = guessed[batch.answer_BS]
        assert torch.equal(found_N[~masked_N], seen_BS[batch.answer_BS][~masked_N])
        assert set(found_N[masked_N].tolist()) <= {9, MASK}
        replaced.add(int((found_N[masked_N] == 9).sum()))
    assert int(masked_N.sum()) in replaced, "half of the time all of them"
    assert len(replaced) > 3


def test_guesses_follow_the_model_s_law():
    batch = rows(shard((4008, 8))).lay_out([0], 4096)
    seen_BS = batch.token_BS.masked_fill(batch.answer_BS, MASK)
    logits_NV = torch.full((4000, 53), -30.0)
    logits_NV[:, 3], logits_NV[:, 4] = 0.0, 1.0
    guessed = own_guesses(batch, seen_BS, logits_NV, MASK, torch.Generator().manual_seed(3))
    found = guessed[batch.answer_BS]
    share = (found == 4).sum() / ((found == 3) | (found == 4)).sum()
    assert abs(share - 0.7311) < 0.03


def test_the_loss_weighs_masked_wrong_and_kept_tokens():
    model = tiny_llada2()
    batch = rows(shard((22, 7), (18, 4))).lay_out([0, 1], 8)
    noise = Noise(kept_weight=0.25, own_from=9)
    found = denoising_objective(model, noise)(batch, torch.Generator().manual_seed(5))
    seen_BS = corrupted(batch, noise, MASK, torch.Generator().manual_seed(5))
    hidden = model(seen_BS, batch.position_BS, RowsMemory(denoising_mask(batch)))
    total = weights = 0.0
    masked = []
    for row, place in batch.answer_BS.nonzero().tolist():
        label, seen = int(batch.token_BS[row, place]), int(seen_BS[row, place])
        loss = -float(model.logits(hidden[row, place]).log_softmax(dim=-1)[label])
        weight = 0.25 if seen == label else 1.0
        total, weights = total + weight * loss, weights + weight
        if seen == MASK:
            masked.append(loss)
    assert float(found.loss) == pytest.approx(total / weights, rel=1e-4)
    assert float(found.metrics["masked"]) == pytest.approx(sum(masked) / len(masked), rel=1e-4)
    assert "own_wrong" not in found.metrics


def test_a_second_turn_follows_in_large_blocks():
    model = tiny_llada2().requires_grad_(requires_grad=True)
    batch = rows(shard((22, 7), (18, 4))).lay_out([0, 1], 8)
    found = denoising_objective(model, Noise(own_from=8))(batch, torch.Generator().manual_seed(5))
    assert float(found.metrics["own_wrong"]) > 0
    found.loss.backward()
    assert model.layers[1].mlp.experts.gate_EUD.grad.abs().sum() > 0


def test_the_share_of_second_turns():
    model = tiny_llada2()
    batch = rows(shard((22, 7))).lay_out([0], 8)
    objective = denoising_objective(model, Noise(own_from=8, own_share=0.5))
    turns = ["own_wrong" in objective(batch, torch.Generator().manual_seed(i)).metrics for i in range(60)]
    assert 18 < sum(turns) < 42


def test_stages_mix_sizes_by_weight():
    stages = BlockStages(((10, {1: 1}), (float("inf"), {4: 3, 64: 1})))
    assert {stages.block(number, 0) for number in range(10)} == {1}
    later = [stages.block(number, 0) for number in range(10, 810)]
    assert set(later) == {4, 64}
    assert abs(later.count(4) / 800 - 0.75) < 0.05
    assert later == [stages.block(number, 0) for number in range(10, 810)]


def test_an_epoch_has_every_document_once_and_the_next_another_order():
    found = rows(shard(*[(8 + 4 * (i % 7), 3) for i in range(40)], seed=1), batch=4)
    epochs = [
        [batch.token_BS[:, :3].tolist() for batch in map(found.batch, range(start, start + 10))]
        for start in (0, 10)
    ]
    expected = sorted(found.shard.document(i)[:3].tolist() for i in range(40))
    for epoch in epochs:
        assert sorted(row for batch in epoch for row in batch) == expected
    assert epochs[0] != epochs[1]
