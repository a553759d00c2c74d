"""Kind: what one kind of function is called, asked for, written as, and what it must return."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of function: how it is called, described and written, and what it must return."""

    names: str  # function names, apart by spaces
    takes: str  # parameters with types, apart by commas; $names come from the pools, $m is a small number
    gives: str  # return type
    does: str  # description with alternatives, as in "returns the sum of $xs"
    bodies: tuple[str, ...]  # implementations, indented by nothing; the function's own name is $f
    oracle: Callable[..., object]  # (m, *arguments) -> what the function returns
    cases: tuple[tuple[object, ...], ...]  # arguments to try
