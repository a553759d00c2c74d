"""Who sees whom, against a rule written out per pair of rows, for all kinds of layers and several blocks at once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specmodels.dflash import BlockRows, LayerKind, block_mask


def sees(kind: LayerKind, query: int, block: int, anchor: int, key: int, owner: int) -> bool:
    if owner >= 0 and owner != block:
        return False
    if owner < 0 and key >= anchor:
        return False
    if owner >= 0 and kind.causal and key > query:
        return False
    return kind.window is None or abs(query - key) < kind.window


@given(
    anchors=st.lists(st.integers(0, 14), min_size=1, max_size=3),
    rows=st.integers(1, 5),
    context=st.integers(0, 16),
    window=st.one_of(st.none(), st.integers(1, 9)),
    causal=st.booleans(),
)
def test_every_pair(anchors, rows, context, window, causal):
    kind = LayerKind(window=window, causal=causal)
    position = [anchor + row for anchor in anchors for row in range(rows)]
    block = [index for index in range(len(anchors)) for _ in range(rows)]
    anchor = [anchor for anchor in anchors for _ in range(rows)]
    key_position = [*range(context), *position]
    owner = [-1] * context + block
    queries = BlockRows(torch.tensor([position]), torch.tensor([block]), torch.tensor([anchor]))
    mask = block_mask(kind, queries, torch.tensor([key_position]), torch.tensor([owner]))
    expected = [
        [sees(kind, q, b, a, k, o) for k, o in zip(key_position, owner, strict=True)]
        for q, b, a in zip(position, block, anchor, strict=True)
    ]
    assert mask.shape == (1, len(position), len(key_position))
    assert mask[0].tolist() == expected


@pytest.mark.parametrize(("causal", "expected"), [(False, "xx.xx."), (True, "xx.x..")])
def test_by_hand(causal, expected):
    """Anchor at 2, block of two, then a row of another block: position 2 of the context has no feature yet."""
    rows = BlockRows(torch.tensor([[2]]), torch.tensor([[0]]), torch.tensor([[2]]))
    mask = block_mask(
        LayerKind(window=None, causal=causal),
        rows,
        torch.tensor([[0, 1, 2, 2, 3, 4]]),
        torch.tensor([[-1, -1, -1, 0, 0, 1]]),
    )
    assert "".join("x" if seen else "." for seen in mask[0, 0].tolist()) == expected
