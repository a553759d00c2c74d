"""AdaFlash's head: its formula, its public names, what it refuses, and the moving mean."""

import pytest
import torch

from speccorrect.length_head import LengthHead, save_length_head, smooth, take_length_head
from speccorrect.source import HeadShape, HeadSource

SHAPE = HeadShape(hidden_size=6, vocab_size=9, block_size=4, shifted=False)
NAMES = {
    f"thresh_head_two_model.{layer}.{part}"
    for layer in ("down", "res.0", "out")
    for part in ("weight", "bias")
}


def head(seed=0):
    torch.manual_seed(seed)
    return LengthHead(6, width=5)


def test_the_formula():
    made, hidden = head(), torch.randn(3, 4, 6)
    tensors = save_length_head(made)[1]

    def linear(name, row):
        weight = tensors[f"thresh_head_two_model.{name}.weight"]
        return weight @ row + tensors[f"thresh_head_two_model.{name}.bias"]

    def silu(row):
        return row / (1 + torch.exp(-row))

    expected = []
    for block in hidden:
        narrow = silu(linear("down", torch.cat([sum(block) / 4, block[3]])))
        narrow = narrow + silu(linear("res.0", narrow))
        expected.append(linear("out", narrow)[0])
    torch.testing.assert_close(made(hidden), torch.stack(expected))


def test_no_gradient_reaches_the_drafter():
    hidden = torch.randn(2, 4, 6, requires_grad=True)
    made = head()
    made(hidden).sum().backward()
    assert hidden.grad is None
    assert made.down.weight.grad is not None


def test_saved_and_taken_is_bit_equal_and_leaves_nothing():
    made = head(3)
    keys, tensors = save_length_head(made)
    assert set(tensors) == NAMES
    source = HeadSource(SHAPE, dict(keys), dict(tensors))
    taken = take_length_head(source)
    assert not source.config
    assert not source.tensors
    for name, tensor in made.state_dict().items():
        assert torch.equal(taken.state_dict()[name], tensor)


def test_a_checkpoint_without_it_is_left_alone():
    source = HeadSource(SHAPE, {"other": 1}, {"fc.weight": torch.zeros(1)})
    assert take_length_head(source) is None
    assert source.config == {"other": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thresh_head_direct_len": False}, "thresh_head_direct_len': got false, expected true"),
        ({"thresh_head_bottleneck_dim": 0}, "thresh_head_bottleneck_dim': got 0, expected at least 1"),
        ({"thresh_head_bottleneck_dim": 7}, "got shape"),
    ],
)
def test_other_heads_are_refused(change, message):
    keys, tensors = save_length_head(head())
    with pytest.raises(ValueError, match=message):
        take_length_head(HeadSource(SHAPE, {**keys, **change}, dict(tensors)))


def test_the_moving_mean_starts_with_the_first_block_and_leans_to_the_newest():
    before = torch.tensor([-1.0, 0.5])
    torch.testing.assert_close(smooth(torch.tensor([0.2, 1.0]), before), torch.tensor([0.2, 0.5 + 0.3 * 0.5]))
