"""Arguments as callers write them: unknown keywords and words are answered with those there are."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

from longtake.errors import SettingError
from longtake.memory.budget import Budget

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def checked_keywords(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The same function, whose unknown keywords are refused in one sentence."""
    known = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]

    @wraps(function)
    def checked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        for name in kwargs:
            if name not in known:
                raise SettingError(
                    f"{function.__qualname__} has no keyword '{name}'; choose one of {', '.join(known)}."
                )
        return function(*args, **kwargs)

    return checked


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
