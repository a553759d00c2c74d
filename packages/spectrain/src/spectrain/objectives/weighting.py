"""Values and weights of slots go in, their weighted mean comes out."""

from torch import Tensor


def weighted_mean(value: Tensor, weight: Tensor) -> Tensor:
    """Sum of value times weight over the sum of weights; zero where nothing has weight, whatever the values are there."""
    counted = value.masked_fill(weight == 0, 0.0)
    return (counted * weight).sum() / weight.sum().clamp_min(1e-6)
