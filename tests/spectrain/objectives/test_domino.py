"""The curriculum's course and the mixed loss, by hand."""

import pytest
import torch

from spectrain.objectives.domino import Curriculum, domino_loss


def test_the_base_has_it_all_at_first_and_nothing_in_the_end():
    curriculum = Curriculum(steps=4)
    assert [curriculum.base_share(step) for step in range(4)] == [1.0, 0.75, 0.5, 0.25]
    half = Curriculum(steps=4, ratio=0.5)
    assert [half.base_share(step) for step in range(4)] == [1.0, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("step", [-1, 4, 100])
def test_a_step_outside_the_run_is_refused(step):
    with pytest.raises(ValueError, match="expected 0 to 3"):
        Curriculum(steps=4).base_share(step)


@pytest.mark.parametrize("changes", [{"steps": 0}, {"steps": 3, "ratio": 0.0}, {"steps": 3, "ratio": 1.5}])
def test_a_run_without_length_has_no_curriculum(changes):
    with pytest.raises(ValueError, match="curriculum"):
        Curriculum(**changes)


def test_the_loss_is_the_mixture():
    generator = torch.Generator().manual_seed(0)
    final, base, weight = torch.rand(3, 4, 5, generator=generator, dtype=torch.float64)
    total = norm = 0.0
    for m in range(4):
        for k in range(5):
            w = float(weight[m, k])
            total += w * (0.7 * float(final[m, k]) + 0.3 * float(base[m, k]))
            norm += w
    assert float(domino_loss(final, base, weight, 0.3)) == pytest.approx(total / norm, abs=1e-9)
