"""Costs between what was measured, beyond it, and tables that are none."""

import pytest
import torch

from specrun.costs import CostTable

CPU = torch.device("cpu")


def table(**changes):
    fields = {
        "batch": 1,
        "contexts": (64, 256),
        "widths": (1, 4, 8),
        "round": ((1.0, 4.0, 6.0), (2.0, 5.0, 7.0)),
        "plain": (0.5, 1.5),
        "stages": {"verify": ((0.5, 2.0, 3.0), (1.0, 2.5, 3.5))},
    }
    return CostTable(**fields | changes)


def test_widths_and_contexts_in_between_lie_on_lines():
    assert table().at(64, 8, 1, CPU).seconds_T.tolist() == [1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 5.5, 6.0]
    assert table().at(160, 4, 1, CPU).seconds_T.tolist() == [1.5, 2.5, 3.5, 4.5]
    assert table().plain_at(160) == 1.0


def test_outside_the_nearest_line_goes_on_and_never_falls():
    assert table().at(32, 10, 1, CPU).seconds_T.tolist()[-3:] == [6.0, 6.5, 7.0]
    assert table().at(352, 1, 1, CPU).seconds_T.tolist() == [2.5]
    falling = table(round=((1.0, 4.0, 3.0), (2.0, 5.0, 4.0)))
    assert falling.at(64, 12, 1, CPU).seconds_T.tolist()[-4:] == [3.0] * 4


def test_another_batch_is_read_by_its_rows_in_all():
    assert table().at(64, 2, 2, CPU).seconds_T.tolist() == [1.0, 2.0, 3.0, 4.0]
    double = table(batch=2).at(64, 4, 2, CPU).seconds_T
    assert double[1::2].tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    "changes",
    [
        {"widths": (2, 4, 8)},
        {"contexts": ()},
        {"round": ((1.0, 4.0), (2.0, 5.0))},
        {"plain": (0.5,)},
        {"plain": (0.5, 0.0)},
        {"stages": {"verify": ((1.0, 2.0, 3.0),)}},
    ],
)
def test_a_table_that_is_none_is_refused(changes):
    with pytest.raises(ValueError, match="costs: "):
        table(**changes)
