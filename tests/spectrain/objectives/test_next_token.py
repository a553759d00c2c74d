"""Labels stay inside documents, and the loss is the mean written from its definition."""

import torch

from spectrain.data import PADDING
from spectrain.objectives.next_token import next_token_loss, next_tokens, token_losses


def test_labels_stop_at_the_end_of_a_document():
    token_BS = torch.tensor([[5, 6, 7, 8, 9, 0]])
    document_BS = torch.tensor([[4, 4, 4, 2, 2, PADDING]])
    label_BS, weight_BS = next_tokens(token_BS, document_BS)
    assert weight_BS.tolist() == [[1, 1, 0, 1, 0, 0]]
    assert label_BS[0, [0, 1, 3]].tolist() == [6, 7, 9]


def test_two_rows_of_padding_predict_nothing():
    _, weight_BS = next_tokens(torch.zeros(1, 3, dtype=torch.int64), torch.full((1, 3), PADDING))
    assert not weight_BS.any()


def test_loss_equals_its_definition():
    logits_BSV = torch.randn(2, 3, 7)
    label_BS = torch.randint(7, (2, 3))
    weight_BS = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    total = 0.0
    for b in range(2):
        for s in range(3):
            p = logits_BSV[b, s].exp() / logits_BSV[b, s].exp().sum()
            total -= float(weight_BS[b, s] * p[label_BS[b, s]].log())
    torch.testing.assert_close(next_token_loss(logits_BSV, label_BS, weight_BS), torch.tensor(total / 4))
    token = token_losses(logits_BSV, label_BS)
    torch.testing.assert_close((token * weight_BS).sum() / 4, torch.tensor(total / 4))
