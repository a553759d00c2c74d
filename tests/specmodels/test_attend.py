"""`attend` against its naive twin: catches a wrong scale, a mask read the wrong way round, a wrong head for a group."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specmodels.attend import attend, attend_naive, mask_addend

# fp32 sums of at most 64 terms in another order
TOLERANCE = 2e-6


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    batch=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    rows=st.integers(1, 9),
    past=st.integers(0, 20),
    head_dim=st.sampled_from([4, 8, 16]),
)
def test_masked_attention_equals_its_twin(seed, batch, kv_heads, group, rows, past, head_dim):
    generator = torch.Generator().manual_seed(seed)
    columns = rows + past
    query = torch.randn(batch, kv_heads * group, rows, head_dim, generator=generator)
    key = torch.randn(batch, kv_heads, columns, head_dim, generator=generator)
    value = torch.randn(batch, kv_heads, columns, head_dim, generator=generator)
    mask = torch.rand(batch, rows, columns, generator=generator) < 0.5
    mask[:, torch.arange(rows), torch.arange(rows) + past] = True  # every row sees at least itself
    torch.testing.assert_close(
        attend(query, key, value, mask), attend_naive(query, key, value, mask), atol=TOLERANCE, rtol=TOLERANCE
    )


@pytest.mark.parametrize("group", [1, 2])
def test_no_mask_is_causal(group):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 2 * group, 7, 8, generator=generator)
    key, value = torch.randn(2, 2, 2, 7, 8, generator=generator)
    causal = torch.ones(7, 7, dtype=torch.bool).tril().expand(2, 7, 7)
    expected = attend_naive(query, key, value, causal)
    torch.testing.assert_close(attend(query, key, value, None), expected, atol=TOLERANCE, rtol=TOLERANCE)
    torch.testing.assert_close(attend_naive(query, key, value, None), expected, atol=0, rtol=0)


def test_one_query_by_hand():
    """Two keys, one hidden: all weight on the other; then both: weights of the softmax of 0 and ln 3."""
    query = torch.tensor([[[[2.0, 0.0, 0.0, 0.0]]]])
    key = torch.zeros(1, 1, 2, 4)
    key[0, 0, 1, 0] = torch.log(torch.tensor(3.0))
    value = torch.tensor([[[[1.0, 0, 0, 0], [5.0, 0, 0, 0]]]])
    for function in (attend, attend_naive):
        hidden = function(query, key, value, torch.tensor([[[True, False]]]))
        both = function(query, key, value, torch.tensor([[[True, True]]]))
        assert hidden[0, 0, 0, 0].item() == 1.0
        assert abs(both[0, 0, 0, 0].item() - (1 * 0.25 + 5 * 0.75)) < 1e-6


def test_masked_rows_of_any_finite_size_do_not_leak():
    """Rows that a mask hides take part as zero times value; large finite ones must leave no trace."""
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(1, 2, 3, 8, generator=generator)
    key, value = torch.randn(2, 1, 1, 6, 8, generator=generator)
    mask = torch.ones(1, 3, 6, dtype=torch.bool)
    mask[:, :, 4:] = False
    clean = attend(query, key, value, mask)
    key[:, :, 4:], value[:, :, 4:] = 1e18, 1e30
    assert torch.equal(attend(query, key, value, mask), clean)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_mask_made_into_an_addend_says_the_same(dtype):
    generator = torch.Generator().manual_seed(5)
    query = torch.randn(2, 4, 3, 8, generator=generator).to(dtype)
    key, value = torch.randn(2, 2, 2, 6, 8, generator=generator).to(dtype)
    mask = torch.rand(2, 3, 6, generator=generator) < 0.5
    mask[:, :, 0] = True
    addend = mask_addend(mask, dtype)
    assert torch.equal(addend == 0, mask)
    assert addend[~mask].eq(float("-inf")).all()
    for function in (attend, attend_naive):
        assert torch.equal(function(query, key, value, addend), function(query, key, value, mask))
