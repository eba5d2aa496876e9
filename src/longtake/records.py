"""Values from JSON as the records they were written from: every field there, none left over, each of its type."""

import json
import math
import reprlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

_Record = TypeVar("_Record")
_LARGEST = 2**63 - 1


def parse_json(text: str | bytes) -> Any:
    """JSON as plain values; whatever is wrong with it is a ValueError, nesting without end included."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def record_from(kind: type[_Record], values: object) -> _Record:
    """The record that `dataclasses.asdict` made these values from; else a ValueError that names the field.

    Whole numbers fit in 64 bits, and none is NaN. Fields of a type that is no plain value are taken as they are.
    """
    return cast(_Record, _read(kind, values, ""))


def _read(kind: Any, value: Any, name: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _read_union(arguments, value, name)
    if origin is tuple:
        return _read_tuple(arguments, value, name)
    if origin is Mapping:
        _require(isinstance(value, Mapping) and all(isinstance(key, str) for key in value), "an object", value, name)
        return {key: _read(arguments[1], item, f"{name}.{key}") for key, item in value.items()}
    if not isinstance(kind, type):
        return value
    if is_dataclass(kind):
        return _read_record(kind, value, name)
    if issubclass(kind, Enum):
        known = [choice.value for choice in kind]
        _require(value in known, " or ".join(map(repr, known)), value, name)
        return kind(value)
    if kind is float:
        _require(_is_number(value), "a number", value, name)
        return float(value)
    if kind is int:
        is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
        _require(is_whole, "a whole number", value, name)
    if kind in (bool, str, NoneType):
        _require(isinstance(value, kind), f"a {kind.__name__}", value, name)
    return value


def _read_record(kind: Any, values: Any, name: str) -> Any:
    _require(isinstance(values, Mapping), "an object", values, name)
    own = {field.name: field for field in fields(kind)}
    needed = {field.name for field in own.values() if field.default is MISSING and field.default_factory is MISSING}
    for wrong, problem in ((needed - values.keys(), "is missing"), (values.keys() - own.keys(), "is not known")):
        if wrong:
            raise ValueError(f"'{_below(name, str(min(wrong, key=str)))}' {problem}")
    types = get_type_hints(kind)
    return kind(**{key: _read(types[key], value, _below(name, key)) for key, value in values.items()})


def _read_union(kinds: tuple[Any, ...], value: Any, name: str) -> Any:
    """As the first kind that takes it; an int before a float, as an int is one too."""
    for kind in kinds:
        try:
            return _read(kind, value, name)
        except ValueError as error:
            last = error
    raise last


def _read_tuple(kinds: tuple[Any, ...], values: Any, name: str) -> tuple[Any, ...]:
    is_long = kinds[-1] is Ellipsis
    of_length = "a list" if is_long else f"a list of {len(kinds)}"
    is_list = isinstance(values, list | tuple)
    _require(is_list and (is_long or len(values) == len(kinds)), of_length, values, name)
    of_each = kinds[:1] * len(values) if is_long else kinds
    return tuple(
        _read(kind, value, f"{name}[{place}]") for place, (kind, value) in enumerate(zip(of_each, values, strict=True))
    )


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= _LARGEST if isinstance(value, int) else not math.isnan(value)


def _below(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _require(holds: bool, expected: str, value: object, name: str) -> None:
    if not holds:
        raise ValueError(f"expected {expected} as '{name or 'record'}', but got {reprlib.repr(value)}")
