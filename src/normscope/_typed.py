"""Values from JSON as what their types say, checked all the way down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from normscope._checks import describe


def typed(kind: Any, value: Any, name: str = "value") -> Any:
    """`value` as a `kind`: a dataclass, list, dict, union or literal of these, or a plain type.

    A whole number passes as a float; NaN, infinity and booleans pass as no number. A dataclass
    takes an object with its fields, no others, and all that have no default.

    Raises:
        ValueError: `name`, what it must be, and what came.

    >>> typed(dict[str, float | None], {"lr": 1, "norm": None})
    {'lr': 1.0, 'norm': None}
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _object(kind, value, name)
    if origin in (Union, UnionType):
        return _one_of(arguments, value, name)
    if origin is Literal:
        return (
            value
            if value in arguments and type(value) in map(type, arguments)
            else _no(name, kind, value)
        )
    if origin is list and isinstance(value, list):
        return [typed(arguments[0], v, f"{name}[{i}]") for i, v in enumerate(value)]
    if origin is dict and isinstance(value, Mapping):
        return {
            typed(arguments[0], k, f"a key of {name}"): typed(arguments[1], v, f"{name}.{k}")
            for k, v in value.items()
        }
    if kind is float and type(value) in (int, float) and abs(value) <= _LARGEST:
        return float(value)
    return value if type(value) is kind and kind is not float else _no(name, kind, value)


_LARGEST = 1.7976931348623157e308  # NaN is not below it


def _object(kind: Any, value: Any, name: str) -> Any:
    hints = _hints(kind)
    if not isinstance(value, Mapping):
        _no(name, kind, value)
    for key in value:
        if key not in hints:
            raise ValueError(f"{name} has an unknown key {key!r}")
    needed = [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]
    for key in needed:
        if key not in value:
            raise ValueError(f"{name} has no {key}")
    return kind(**{k: typed(hints[k], v, f"{name}.{k}") for k, v in value.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind) if f.init}


def _one_of(kinds: tuple[Any, ...], value: Any, name: str) -> Any:
    others = [kind for kind in kinds if kind is not type(None)]
    if value is None and len(others) < len(kinds):
        return None
    if len(others) == 1:
        return typed(others[0], value, name)
    for kind in others:
        try:
            return typed(kind, value, name)
        except ValueError:
            continue
    return _no(name, others[0], value)


_WORDS = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}


def _no(name: str, kind: Any, value: Any) -> Any:
    constraint = _WORDS.get(get_origin(kind) or kind, "an object")
    if get_origin(kind) is list:
        constraint = "a list"
    elif get_origin(kind) is Literal:
        constraint = f"one of {', '.join(map(repr, get_args(kind)))}"
    raise ValueError(f"{name} must be {constraint}, got {describe(value)}")
