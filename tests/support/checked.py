"""Checks of every annotated function's types, as jaxtyping makes them, in a fraction of its time."""

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import jaxtyping
import numpy as np
from beartype import beartype
from beartype.door import die_if_unbearable
from torch import Tensor

CHECKER = "beartype.beartype"
_jaxtyped = jaxtyping.jaxtyped


def install(*packages: str) -> None:
    """From now on, all that is imported of the packages is checked."""
    jaxtyping.install_import_hook(packages, CHECKER).__enter__()
    jaxtyping.jaxtyped = jaxtyped  # the name that the hook puts above every function and class


def jaxtyped(*, typechecker: Callable[..., Any]) -> Callable[[Any], Any]:
    """In place of jaxtyping's, which binds arguments by their signature and checks them twice, at every call.

    A function without shapes has nothing that beartype alone would miss. One with shapes is checked once for each
    combination of types, shapes, dtypes and, where these are sizes, numbers: what passed before would pass again.
    """

    def check(checked: Any) -> Any:
        if inspect.isclass(checked):
            if is_dataclass(checked) and "__init__" in vars(checked):
                checked.__init__ = check(checked.__init__)
            return checked
        if any(
            getattr(annotation, "__module__", "").startswith("triton.")
            for annotation in checked.__annotations__.values()
        ):
            return checked  # a kernel, whose source is compiled
        hints = [hint for annotation in checked.__annotations__.values() for hint in _parts(annotation)]
        shapes = [hint for hint in hints if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)]
        is_named_later = any(isinstance(hint, str | typing.ForwardRef) for hint in hints)
        of_values = [shape.dim_str for shape in shapes if "{" in shape.dim_str]
        is_of_attributes = any("." in axes for axes in of_values)
        if not shapes and not is_named_later:
            return beartype(checked)
        if inspect.isgeneratorfunction(checked) or is_of_attributes:
            return _jaxtyped(typechecker=typechecker)(checked)
        checks = _jaxtyped(typechecker=typechecker) if is_named_later or of_values else _with_axes
        return _once(checked, checks, _size if of_values else _kind)

    return check


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in annotation if isinstance(annotation, list) else typing.get_args(annotation):
        yield from _parts(part)


def _with_axes(unchecked: Callable[..., Any]) -> Callable[..., Any]:
    """An axis has one size in all arguments and the result of a call."""
    checked = beartype(unchecked)

    @functools.wraps(unchecked)
    def call(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        with _jaxtyped("context"):
            return checked(*arguments, **named)

    return call


def _once(
    unchecked: Callable[..., Any], checks: Callable[..., Any], told_by: Callable[[Any], Any]
) -> Callable[..., Any]:
    """A function within another is made again and again: what passed once passes in all that are made of its code."""
    checked = functools.cache(lambda: checks(unchecked))
    key = (unchecked.__module__, unchecked.__qualname__, unchecked.__code__)
    if key not in _PASSED:
        _PASSED[key] = {}
        checked()
    passed = _PASSED[key]

    @functools.wraps(unchecked)
    def call(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        given = (*map(told_by, arguments), *named, *map(told_by, named.values()))
        results = passed.get(given)
        if results is None:
            result = checked()(*arguments, **named)
            passed[given] = {_kind(result)}
            return result
        result = unchecked(*arguments, **named)
        if (kind := _kind(result)) not in results:
            _check_result(unchecked, arguments, named, result)
            results.add(kind)
        return result

    return call


_PASSED: dict[Any, dict[Any, set[Any]]] = {}
"""Of each function, the results that passed, by arguments."""


def _kind(value: Any) -> Any:
    """All that a check may look at."""
    own = type(value)
    if own in _PLAIN:
        return own
    if own is Tensor or issubclass(own, _ARRAYS):
        return own, value.shape, value.dtype
    if issubclass(own, _SEQUENCES):
        return own, *map(_kind, value)
    if issubclass(own, dict):
        return own, *((_kind(key), _kind(each)) for key, each in value.items())
    if issubclass(own, type):
        return value
    _PLAIN.add(own)
    return own


def _size(value: Any) -> Any:
    """All that a check may look at where the size of an axis is an argument, or one of its numbers."""
    if isinstance(value, int):
        return type(value), value
    return (type(value), *map(_size, value)) if isinstance(value, _SEQUENCES) else _kind(value)


_ARRAYS = (Tensor, np.ndarray)
_SEQUENCES = (tuple, list)
_PLAIN: set[type] = set()
"""Met, and told by their type alone."""


def _check_result(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
    """Arguments that passed give the sizes of the axes."""
    hints = typing.get_type_hints(function, include_extras=True)

    @_jaxtyped(typechecker=None)
    @functools.wraps(function)
    def check(*arguments: Any, **named: Any) -> None:
        for name, value in inspect.signature(function).bind(*arguments, **named).arguments.items():
            if name in hints:
                die_if_unbearable(value, hints[name])
        die_if_unbearable(result, hints.get("return", object))

    check(*arguments, **named)
