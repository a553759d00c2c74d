"""A table of a TOML file goes in, a frozen dataclass comes out, or one line that says which key is wrong.

It knows the types that recipes use: numbers, texts, flags, lists of one kind, choices, tables, and what may be left out.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def read_table(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """The dataclass `kind` from a table; `where` says in messages which table it is."""
    assert is_dataclass(kind), kind
    hints, known = get_type_hints(kind), {field.name: field for field in fields(kind)}
    for key in table:
        if key not in known:
            raise ValueError(
                f"{where}: got the key {key!r}, expected one of {', '.join(known)}; check its spelling"
            )
    values = {}
    for name, field in known.items():
        if name in table:
            values[name] = _value(hints[name], table[name], f"{where}.{name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{where}: got no key {name!r}, expected {_expected(hints[name])}; add it")
    try:
        return kind(**values)
    except ValueError as error:  # a value that its own dataclass refuses
        raise ValueError(f"{where}: {error}") from error


def _value(kind: Any, value: Any, where: str) -> Any:
    origin, inside = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(value, dict):
        return read_table(kind, value, where)  # type: ignore[arg-type]  # a class, as its annotation says
    if origin in {Union, types.UnionType}:
        return _value(next(one for one in inside if one is not types.NoneType), value, where)
    if origin is Literal and isinstance(value, str) and value in inside:
        return value
    if origin is tuple and isinstance(value, list):
        one = inside[0]
        if inside[-1] is Ellipsis or len(inside) == len(value):
            return tuple(_value(one, item, f"{where}[{place}]") for place, item in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return types.MappingProxyType(dict(value))
    # exact types: to isinstance, true is a whole number
    if kind is float and type(value) is int:
        return float(value)
    if kind in _WORDS and type(value) is kind:
        return value
    raise ValueError(f"{where}: got {value!r}, expected {_expected(kind)}")


def _expected(kind: Any) -> str:
    origin, inside = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return _expected(next(one for one in inside if one is not types.NoneType))
    if origin is Literal:
        return " or ".join(map(repr, inside))
    if origin is tuple:
        count = "" if inside[-1] is Ellipsis else f" of {len(inside)}"
        return f"a list{count}, each {_expected(inside[0])}"
    return _WORDS.get(kind, "a table")
