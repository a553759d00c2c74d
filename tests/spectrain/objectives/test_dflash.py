"""The decay, the chunked loss and the count of accepted drafts, against their definitions."""

import math

import torch

from spectrain.objectives.dflash import accepted, block_loss, decay_weights


def test_decay_is_one_at_the_first_draft_and_zero_at_the_anchor():
    slot_BQ = torch.tensor([[-1, 0, 1, 2]])
    weights = decay_weights(slot_BQ, torch.tensor([[False, True, True, False]]), 7.0)
    torch.testing.assert_close(weights, torch.tensor([[0.0, 1.0, math.exp(-1 / 7), 0.0]]))


def test_chunks_change_neither_loss_nor_gradients():
    head_VD = torch.randn(11, 6)
    label_N, weight_N = torch.randint(11, (20,)), torch.rand(20)
    found = []
    for chunk in (None, 7, 20, 1):
        hidden_ND = torch.linspace(-1, 1, 120).view(20, 6).requires_grad_()
        loss = block_loss(hidden_ND, label_N, weight_N, lambda x: x @ head_VD.mT, chunk=chunk)
        loss.backward()
        found.append((loss.detach(), hidden_ND.grad))
    by_hand = -(torch.linspace(-1, 1, 120).view(20, 6) @ head_VD.mT).log_softmax(-1)[
        torch.arange(20), label_N
    ]
    torch.testing.assert_close(found[0][0], (by_hand * weight_N).sum() / weight_N.sum())
    for loss, gradient in found[1:]:
        torch.testing.assert_close(loss, found[0][0])
        torch.testing.assert_close(gradient, found[0][1])


def test_rows_without_weight_do_not_count():
    head_VD = torch.randn(11, 6)
    hidden_ND, label_N = torch.randn(8, 6), torch.randint(11, (8,))
    weight_N = torch.tensor([1.0, 0.5, 0.2, 0, 0, 0, 0, 0])
    padded = block_loss(hidden_ND, label_N, weight_N, lambda x: x @ head_VD.mT)
    plain = block_loss(hidden_ND[:3], label_N[:3], weight_N[:3], lambda x: x @ head_VD.mT)
    torch.testing.assert_close(padded, plain)
    assert float(block_loss(hidden_ND, label_N, torch.zeros(8), lambda x: x @ head_VD.mT)) == 0.0


def test_accepted_counts_up_to_the_first_wrong_draft():
    right_NK = torch.tensor([[True, True, False, True], [False, True, True, True], [True] * 4])
    assert accepted(right_NK).tolist() == [2, 0, 4]
