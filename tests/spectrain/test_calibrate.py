"""Calibration: the noise it reconstructs is the noise that drew the text, and the fit finds what was put in."""

import pytest
import torch

from speccorrect.couple import Coupling, couple
from speccorrect.registry import corrector_spec
from speccorrect.source import HeadShape
from specmodels.kv import RowsMemory
from specrun.calibration import read_calibration
from specrun.config import Sampling
from specrun.engine import Engine
from specrun.methods import method
from spectrain.calibrate import (
    Seen,
    Trajectory,
    best_draft_temperature,
    fit,
    fit_coupling,
    greedy_acceptance,
    observe,
)

from doubles.tiny import dflash_config, qwen3_config, tiny_drafter, tiny_target

SEED, TEMPERATURE = 11, 0.8


@pytest.fixture(scope="module")
def drawn():
    target = tiny_target(qwen3_config())
    drafter = tiny_drafter(target.config, dflash_config(target.config))
    prompts = [[1, 2, 3], [4, 5], [6]]
    sampling = Sampling(max_new_tokens=30, temperature=TEMPERATURE, seed=SEED, stop_ids=())
    answers = Engine(target, method("ar")).generate_batch(prompts, sampling)
    trajectories = [
        Trajectory(
            prompt=prompt, response=answer.token_ids, seed=SEED, request=index, temperature=TEMPERATURE
        )
        for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    ]
    return target, drafter, trajectories


def test_reconstructed_noise_explains_every_token(drawn):
    """argmax(target's logits + T * G) is the text: wrong positions, requests or seeds explain next to nothing."""
    target, drafter, trajectories = drawn
    shape = HeadShape(hidden_size=1, vocab_size=1, block_size=2, shifted=False)
    none = corrector_spec("none").new(shape)
    vocab = target.config.vocab_size
    for item in trajectories:
        seen = observe(target, drafter, none, [item], candidates=vocab, stride=1)
        token = torch.tensor([item.prompt + item.response])
        at = torch.arange(token.shape[1])[None]
        logits = target.logits(target(token, at, RowsMemory()).hidden_BQD)[0].float()
        law = torch.log_softmax(logits / TEMPERATURE, dim=-1)
        for row in range(seen.place_MK.shape[0]):
            # anchors stand at every response token but the last, so the first drafted token is one further
            first = len(item.prompt) + row
            for slot in range(int(seen.known_MK[row].sum())):
                assert (
                    int((logits[first + slot] + seen.noise_MKC[row, slot]).argmax())
                    == seen.place_MK[row, slot]
                )
                expected = law[first + slot, seen.place_MK[row, slot]]
                torch.testing.assert_close(seen.target_MK[row, slot], expected, atol=1e-4, rtol=0)


def synthetic(
    trust: float, noise: float, other: float, rows: int = 3000, slots: int = 3, count: int = 8
) -> Seen:
    """Slots whose token is drawn from the very model that is fitted."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.log_softmax(2 * torch.randn(rows, slots, count, generator=generator), dim=-1)
    gumbel = -torch.log(-torch.log(torch.rand(rows, slots, count, generator=generator)))
    mixed = torch.cat([trust * scores + noise * gumbel, torch.full((rows, slots, 1), other)], dim=-1)
    place = torch.distributions.Categorical(logits=mixed).sample()
    return Seen(scores, gumbel, place, torch.zeros(rows, slots), torch.ones(rows, slots, dtype=torch.bool))


def test_fit_recovers_the_tables():
    torch.manual_seed(0)
    fitted = fit_coupling(synthetic(trust=0.6, noise=0.8, other=-1.0))
    middle = slice(1, 4)  # the outer bins are nearly empty here and stay near their depth's values
    for table, expected in ((fitted.trust_KX, 0.6), (fitted.noise_KX, 0.8), (fitted.other_KX, -1.0)):
        torch.testing.assert_close(
            table[:, middle], torch.full_like(table[:, middle], expected), atol=0.15, rtol=0
        )


def test_coupled_scores_are_log_probabilities_with_the_other_class():
    scores = torch.log_softmax(torch.randn(2, 3, 5), dim=-1)
    scores[0, 0] = float("-inf")  # a dead lane
    scores[1, 1, 2] = float("-inf")
    noise = torch.randn(2, 1, 5)
    table = Coupling.constant(1, 0.5)
    closed = couple(scores, noise, 0, table)
    assert not closed.isnan().any()
    assert (closed[0, 0] == float("-inf")).all()
    assert closed[1, 1, 2] == float("-inf")
    torch.testing.assert_close(closed.exp().sum(-1)[1], torch.ones(3))
    expected = torch.log_softmax(scores[1, 0] + 0.5 * noise[1, 0], dim=-1)
    torch.testing.assert_close(closed[1, 0], expected)
    open_table = Coupling(
        border_E=table.border_E,
        trust_KX=table.trust_KX,
        noise_KX=table.noise_KX,
        other_KX=torch.full_like(table.trust_KX, -1.0),
    )
    assert (couple(scores, noise, 0, open_table).exp().sum(-1)[1] < 1).all()


def test_draft_temperature_follows_what_is_accepted():
    """Where the target's law is the head's, q at temperature 1 passes every test; where it is sharper, a low one does."""
    seen = synthetic(trust=1.0, noise=0.0, other=-100.0)
    same = seen._replace(target_MK=seen.scores_MKC.gather(-1, seen.place_MK[..., None]).squeeze(-1))
    assert best_draft_temperature(same) == 1.0
    greedy = same._replace(place_MK=same.scores_MKC.argmax(-1), target_MK=torch.zeros_like(same.target_MK))
    assert best_draft_temperature(greedy) == 0.0
    assert greedy_acceptance(greedy) == (1.0, 1.0, 1.0)


def test_file_round_trip_and_bad_files(tmp_path, drawn):
    target, drafter, trajectories = drawn
    none = corrector_spec("none").new(HeadShape(hidden_size=1, vocab_size=1, block_size=2, shifted=False))
    seen = observe(target, drafter, none, trajectories, candidates=8)
    made = fit(seen, documents=3, temperature=TEMPERATURE)
    made.save(tmp_path)
    held = read_calibration(tmp_path, "cpu")
    assert held is not None
    torch.testing.assert_close(held.coupling.noise_KX, made.coupling.noise_KX)
    assert (held.draft_temperature, held.acceptance) == (made.draft_temperature, made.acceptance)
    assert read_calibration(tmp_path / "nowhere", "cpu") is None
    (tmp_path / "calibration.json").write_text('{"borders": [0.5]}')
    with pytest.raises(ValueError, match=r"calibration: .*calibrate again"):
        read_calibration(tmp_path, "cpu")


def test_calibrated_engine_keeps_the_text(drawn):
    target, drafter, trajectories = drawn
    none = corrector_spec("none").new(HeadShape(hidden_size=1, vocab_size=1, block_size=2, shifted=False))
    made = fit(
        observe(target, drafter, none, trajectories, candidates=8), documents=3, temperature=TEMPERATURE
    )
    engine = Engine(target, method("ddtree"), drafter=drafter, corrector=none, calibration=made)
    assert engine.parts.coupling is made.coupling
    sampling = Sampling(max_new_tokens=30, temperature=TEMPERATURE, seed=SEED, stop_ids=())
    answers = engine.generate_batch([item.prompt for item in trajectories], sampling)
    assert [answer.token_ids for answer in answers] == [item.response for item in trajectories]
