"""What a head is taught equals what it is given while decoding, for every head and both slot layouts, and nothing leaks."""

from dataclasses import replace

import pytest
import torch

from speccorrect.contract import unroll
from speccorrect.correctors.dels import DeLS
from speccorrect.law import LawPlan
from speccorrect.registry import corrector_specs
from speccorrect.source import HeadShape
from specrun.config import Sampling
from specrun.stages.correct import correct
from specrun.stages.draft import draft
from specrun.stages.prefill import prefill
from specrun.state import allocate
from spectrain.anchors import Anchors
from spectrain.data import Batch
from spectrain.sampling import Request, sample_responses
from spectrain.taught import confidences, offer, offer_truth, score, teach, teach_text

from doubles.blocks import randomise
from doubles.tiny import dflash_config, qwen3_config, tiny_drafter, tiny_target

CONFIG = qwen3_config(vocab_size=19)
# caches, masks and sums of another shape; heads compute their scores, of size 1 to 200, in fp32 whatever the models are
CLOSE = 2e-5
PLACE = 9


def models(*, shifted: bool):
    target = tiny_target(CONFIG, dtype=torch.float64)
    drafter = tiny_drafter(CONFIG, dflash_config(CONFIG, shifted=shifted), dtype=torch.float64)
    return target, drafter


def head_of(name: str, drafter):
    config = drafter.config
    shape = HeadShape(
        hidden_size=config.hidden_size,
        vocab_size=CONFIG.vocab_size,
        block_size=config.block_size,
        shifted=config.shifted,
    )
    head = randomise(corrector_specs()[name].new(shape))
    if isinstance(head, DeLS):
        head.observe(torch.arange(CONFIG.vocab_size).repeat_interleave(torch.arange(CONFIG.vocab_size)))
    return head


def text(target, length: int = 24) -> torch.Tensor:
    """Ids of which all but the first four are the target's greedy choice, as prefill will choose its first token."""
    prompt = [3, 1, 4, 1]
    answer = sample_responses(
        target, [Request(prompt, 0.0)], end=-1, longest=length - 4, generator=torch.Generator()
    )[0]
    return torch.tensor(prompt + answer)


def batch_of(ids: torch.Tensor, before: int = 5) -> Batch:
    """The text as the second document of a row, behind one of random tokens."""
    other = torch.arange(before) % 7
    token = torch.cat([other, ids])[None]
    return Batch(
        token_BS=token,
        document_BS=torch.cat([torch.zeros(before), torch.ones(len(ids))]).long()[None],
        position_BS=torch.cat([torch.arange(before), torch.arange(len(ids))])[None],
        response_BS=torch.cat([torch.zeros(before + 4), torch.ones(len(ids) - 4)]).bool()[None],
    )


def anchors_at(*places: int) -> Anchors:
    return Anchors(torch.tensor([places]), torch.ones(1, len(places), dtype=torch.bool))


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("name", sorted(corrector_specs()))
def test_scores_of_the_truth_equal_those_of_decoding(name, shifted):
    target, drafter = models(shifted=shifted)
    head, ids = head_of(name, drafter), text(target)
    taught = teach(target, drafter, batch_of(ids), anchors_at(7, 5 + PLACE), distribution=True)
    scored = score(head, taught, offer(taught, head.support))

    state = allocate(target, drafter, batch=1, capacity=64, path=taught.block.slots + 1, penalties=False)
    state.admit(0, Sampling(), (), 0)
    first, _ = prefill(
        state, target, drafter, 0, ids[:PLACE], LawPlan(filters=False, penalties=False, noise=False)
    )
    assert first == int(ids[PLACE])
    block = draft(state, target, drafter, block_size=drafter.config.block_size, span=64)
    for field in ("hidden_BRD", "feature_BD", "anchor_B", "before_B", "feature_valid_B"):
        torch.testing.assert_close(getattr(taught.block, field)[1:], getattr(block, field))
    prepared = correct(block, target, drafter, head, candidates=head.support)
    expected = unroll(head, prepared, scored.choice_MK[1:])
    torch.testing.assert_close(scored.scores_MKC[1:], expected, rtol=CLOSE, atol=CLOSE)
    label = ids[PLACE + 1 : PLACE + 1 + taught.block.slots]
    assert taught.label_MK[1].tolist() == label.tolist()
    ids_KC = scored.prepared.candidates.ids_BKC
    listed = torch.arange(CONFIG.vocab_size).expand(len(label), -1) if ids_KC is None else ids_KC[1]
    assert scored.present_MK[1].tolist() == [
        int(t) in row.tolist() for t, row in zip(label, listed, strict=True)
    ]
    # the target's own logits of the slots: greedy text is their argmax
    assert taught.target_MKV[1].argmax(-1).tolist() == label.tolist()


def test_the_first_token_of_a_document_has_nothing_before_it():
    target, drafter = models(shifted=False)
    taught = teach(target, drafter, batch_of(text(target)), anchors_at(0, 5, 6), distribution=False)
    assert taught.block.feature_valid_B.tolist() == [False, False, True]
    anchors = taught.block.anchor_B
    assert taught.block.before_B[:2].tolist() == anchors[:2].tolist()
    assert int(taught.block.before_B[2]) == int(anchors[1])


@pytest.mark.parametrize("shifted", [False, True])
def test_nothing_at_or_behind_the_anchor_leaks(shifted):
    """Other tokens there change labels, and of the block only the anchor's own embedding."""
    target, drafter = models(shifted=shifted)
    ids = text(target)
    head = head_of("xpress", drafter)
    one = teach(target, drafter, batch_of(ids), anchors_at(5 + PLACE), distribution=False)
    for changed, same in (
        (PLACE + 1, ("hidden_BRD", "feature_BD", "before_B")),
        (PLACE, ("feature_BD", "before_B")),
    ):
        other_ids = ids.clone()
        other_ids[changed:] = (other_ids[changed:] + 1) % (CONFIG.vocab_size - 1)
        other = teach(target, drafter, batch_of(other_ids), anchors_at(5 + PLACE), distribution=False)
        for field in same:
            assert torch.equal(getattr(one.block, field), getattr(other.block, field)), field
        assert not torch.equal(one.label_MK, other.label_MK)
        assert torch.equal(one.base_MKV, other.base_MKV) is (changed > PLACE)
    # a label is seen by later slots alone
    rows = score(head, one, offer(one, None)).scores_MKC
    for slot in range(one.block.slots):
        label = one.label_MK.clone()
        label[:, slot] = (label[:, slot] + 1) % CONFIG.vocab_size
        other_rows = score(head, replace(one, label_MK=label), offer(one, None)).scores_MKC
        assert torch.equal(rows[:, : slot + 1], other_rows[:, : slot + 1])
        assert slot + 1 == one.block.slots or not torch.equal(rows[:, slot + 1], other_rows[:, slot + 1])


def test_injection_puts_the_truth_last_where_it_is_missing():
    target, drafter = models(shifted=False)
    taught = teach(target, drafter, batch_of(text(target)), anchors_at(9, 14), distribution=False)
    plain, injected = offer(taught, 9), offer(taught, 9, inject=True)
    missing = ~(plain.ids_BKC == taught.label_MK[..., None]).any(-1)
    assert 0 < int(missing.sum()) < missing.numel()
    assert torch.equal(injected.ids_BKC[~missing], plain.ids_BKC[~missing])
    assert torch.equal(injected.ids_BKC[..., :8], plain.ids_BKC[..., :8])
    assert torch.equal(injected.ids_BKC[missing][:, 8], taught.label_MK[missing])
    base = taught.base_MKV.gather(-1, injected.ids_BKC)
    torch.testing.assert_close(injected.base_BKC, base.float())
    head = head_of("dflash2", drafter)
    head.support = head.config.top_k
    assert bool(score(head, taught, injected).present_MK.all())


def test_the_truth_alone_scores_as_among_all():
    """For a head whose scores are shares of the whole vocabulary."""
    target, drafter = models(shifted=False)
    taught = teach(target, drafter, batch_of(text(target)), anchors_at(9, 14), distribution=False)
    head = head_of("dblast", drafter)
    alone, among = (score(head, taught, one).nll_MK for one in (offer_truth(taught), offer(taught, None)))
    torch.testing.assert_close(alone, among, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("name", ["none", "dspark"])
def test_confidences_follow_the_truth(name):
    target, drafter = models(shifted=False)
    taught = teach(target, drafter, batch_of(text(target)), anchors_at(9, 14), distribution=False)
    head = head_of(name, drafter)
    scored = score(head, taught, offer(taught, None))
    found = confidences(head, scored)
    assert found.shape == taught.label_MK.shape
    if name == "dspark":
        previous = torch.cat([taught.block.anchor_B[:, None], taught.label_MK[:, :-1]], dim=1)
        seen = torch.cat([taught.block.rows_BKD.float(), head.previous[previous]], dim=-1)
        expected = seen @ head.judge[0] + head.judge_bias
        torch.testing.assert_close(found, expected, rtol=CLOSE, atol=CLOSE)
    else:
        torch.testing.assert_close(found.sigmoid(), taught.base_MKV.softmax(-1).amax(-1).float())


def test_text_alone_has_the_same_truth():
    target, drafter = models(shifted=False)
    batch, places = batch_of(text(target)), anchors_at(9, 14, 25)
    taught = teach(target, drafter, batch, places, distribution=False)
    plain = teach_text(target, drafter.config, batch, places)
    for field in ("label_MK", "trained_MK", "document_M"):
        assert torch.equal(getattr(plain, field), getattr(taught, field))
    assert torch.equal(plain.block.anchor_B, taught.block.anchor_B)
    assert not bool(plain.base_MKV.any())
    head = head_of("dels", drafter)
    one, other = (
        head.local_logits(head.prepare(x.block, x.borrowed, offer(x, None)), x.label_MK)
        for x in (taught, plain)
    )
    torch.testing.assert_close(one, other)
