"""Tables become what their dataclass says, and every wrong key or value is refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from spectrain.runs.tables import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    rate: float
    pair: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    count: int
    inner: Inner | None = None
    kind: Literal["a", "b"] = "a"
    places: tuple[int, ...] = ()
    flag: bool = False
    free: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"count: got {self.count}, expected at least 0")


def test_values_of_every_kind():
    table = {
        "count": 3,
        "inner": {"rate": 1, "pair": [1, 2.5]},
        "kind": "b",
        "places": [4, 5],
        "flag": True,
        "free": {"x": 1},
    }
    found = read_table(Outer, table, "file")
    assert found == Outer(
        count=3,
        inner=Inner(rate=1.0, pair=(1.0, 2.5)),
        kind="b",
        places=(4, 5),
        flag=True,
        free={"x": 1},
    )
    assert type(found.inner.rate) is float
    assert read_table(Outer, {"count": 0}, "file") == Outer(count=0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, r"file: got no key 'count', expected a whole number; add it"),
        ({"count": 1, "cuont": 2}, r"file: got the key 'cuont', expected one of count, inner, .*spelling"),
        ({"count": True}, r"file\.count: got True, expected a whole number"),
        ({"count": 1.0}, r"file\.count: got 1\.0, expected a whole number"),
        ({"count": 1, "inner": {}}, r"file\.inner: got no key 'rate', expected a number"),
        ({"count": 1, "inner": 7}, r"file\.inner: got 7, expected a table"),
        ({"count": 1, "inner": {"rate": "x"}}, r"file\.inner\.rate: got 'x', expected a number"),
        (
            {"count": 1, "inner": {"rate": 1, "pair": [1]}},
            r"file\.inner\.pair: got \[1\], expected a list of 2",
        ),
        ({"count": 1, "kind": "c"}, r"file\.kind: got 'c', expected 'a' or 'b'"),
        ({"count": 1, "places": [1, "x"]}, r"file\.places\[1\]: got 'x', expected a whole number"),
        ({"count": 1, "flag": 1}, r"file\.flag: got 1, expected true or false"),
        ({"count": -1}, r"file: count: got -1, expected at least 0"),
    ],
)
def test_refusals(table, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        read_table(Outer, table, "file")
