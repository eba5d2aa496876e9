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
    combination of types, shapes and dtypes: what passed before would pass again.
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
        is_of_values = any("{" in shape.dim_str for shape in shapes)
        if not shapes and not is_named_later:
            return beartype(checked)
        if inspect.isgeneratorfunction(checked) or is_of_values:
            return _jaxtyped(typechecker=typechecker)(checked)
        return _once(checked, _jaxtyped(typechecker=typechecker)(checked) if is_named_later else _with_axes(checked))

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


def _once(unchecked: Callable[..., Any], checked: Callable[..., Any]) -> Callable[..., Any]:
    passed: dict[Any, set[Any]] = {}
    """Results that passed, by arguments."""

    @functools.wraps(unchecked)
    def call(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        given = (tuple(map(_kind, arguments)), tuple((name, _kind(value)) for name, value in named.items()))
        if given not in passed:
            result = checked(*arguments, **named)
            passed[given] = {_kind(result)}
            return result
        result = unchecked(*arguments, **named)
        if (kind := _kind(result)) not in passed[given]:
            _check_result(unchecked, arguments, named, result)
            passed[given].add(kind)
        return result

    return call


def _kind(value: Any) -> Any:
    """All that a check may look at."""
    own = type(value)
    if own in _PLAIN:
        return own
    if issubclass(own, Tensor | np.ndarray):
        return own, value.shape, value.dtype
    if issubclass(own, tuple | list):
        return own, *map(_kind, value)
    if issubclass(own, dict):
        return own, *((_kind(key), _kind(each)) for key, each in value.items())
    if issubclass(own, type):
        return value
    _PLAIN.add(own)
    return own


_PLAIN: set[type] = set()
"""Met, and told by their type alone."""


def _check_result(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
    """Arguments that passed give the sizes of the axes."""
    hints = typing.get_type_hints(function, include_extras=True)
    with _jaxtyped("context"):
        for name, value in inspect.signature(function).bind(*arguments, **named).arguments.items():
            if name in hints:
                die_if_unbearable(value, hints[name])
        die_if_unbearable(result, hints.get("return", object))
