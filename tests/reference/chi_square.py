"""How far a sample is from a law."""

import math
from collections import Counter

SMALLEST = 5.0
"""Cells are expected to hold at least this many, the usual bound for the approximation; smaller ones are put together."""


def distance(sample, law) -> float:
    """Pearson's statistic as a standard normal deviate (Wilson and Hilferty); infinite if the impossible happened."""
    counts = Counter(sample)
    if any(law.get(outcome, 0.0) <= 0 for outcome in counts):
        return math.inf
    total = sum(counts.values())
    cells, rest, rest_expected = [], 0, 0.0
    for outcome, probability in law.items():
        if probability * total < SMALLEST:
            rest, rest_expected = rest + counts[outcome], rest_expected + probability * total
        else:
            cells.append((counts[outcome], probability * total))
    if rest_expected >= SMALLEST:
        cells.append((rest, rest_expected))
    assert len(cells) > 1, "one cell holds no information"
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    freedom = len(cells) - 1
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
