"""Arguments as callers write them: what is unknown, or of another type, is answered with what is expected."""

import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ParamSpec, TypeVar

from longtake.errors import SettingError
from longtake.memory.budget import Budget

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_WIDER: dict[Any, type] = {int: Integral, float: Real}
_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    Path: "a path",
    bool: "True or False",
    Sequence: "a list",
}


def checked_arguments(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The same function, which refuses unknown keywords and values of another type in one sentence."""
    signature = inspect.signature(function)
    known = [name for name in signature.parameters if name not in ("self", "cls")]

    @wraps(function)
    def checked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        for name in kwargs:
            if name not in known:
                nearest = "".join(f"perhaps you mean '{word}'; " for word in get_close_matches(name, known, n=1))
                raise SettingError(
                    f"{function.__qualname__} has no keyword '{name}'; {nearest}choose one of {', '.join(known)}."
                )
        for name, value in signature.bind_partial(*args, **kwargs).arguments.items():
            _require_type(name, value, signature.parameters[name].annotation)
        return function(*args, **kwargs)

    return checked


def _require_type(name: str, value: object, annotation: Any) -> None:
    """Refuse what none of the annotation's classes takes; what it says otherwise is left to the function."""
    kinds = typing.get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    classes = [typing.get_origin(kind) or kind for kind in kinds]
    if not all(isinstance(kind, type) for kind in classes) or inspect.Parameter.empty in classes:
        return
    words = [_WORDS.get(kind, kind.__name__) for kind in classes if kind is not NoneType]
    if isinstance(value, str) and not value and Path in classes:  # which as a path would be the current folder
        raise SettingError(f"Expected {name} as {' or '.join(words)}, but got an empty text.")
    if not any(isinstance(value, _WIDER.get(kind, kind)) for kind in classes) or (
        isinstance(value, bool) and bool not in classes
    ):
        raise SettingError(f"Expected {name} as {' or '.join(words)}, but got {value!r:.80}.")


def one_of(what: str, given: str, known: Iterable[str]) -> str:
    """The word, if it is among the known ones."""
    words = list(known)
    if given not in words:
        raise SettingError(f"Expected {what} as {', '.join(words)}, but got '{given}'.")
    return given


def memory_bytes(memory: str | int) -> int:
    """A budget that must be in bytes, because frames vary in size."""
    num_bytes = Budget.parse(str(memory)).num_bytes
    if num_bytes is None:
        raise SettingError(f"Expected memory in bytes such as 512MB, but got '{memory}'; how large a frame is varies.")
    return num_bytes
