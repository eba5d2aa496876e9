"""A keyword that a function does not have is answered with those it has."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from longtake.errors import SettingError

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
