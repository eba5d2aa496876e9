"""Checks of every annotated function's types, as jaxtyping makes them, in a fraction of its time."""

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import jaxtyping
from beartype import beartype

CHECKER = "beartype.beartype"
_jaxtyped = jaxtyping.jaxtyped


def install(*packages: str) -> None:
    """From now on, all that is imported of the packages is checked."""
    jaxtyping.install_import_hook(packages, CHECKER).__enter__()
    jaxtyping.jaxtyped = jaxtyped  # the name that the hook puts above every function and class


def jaxtyped(*, typechecker: Callable[..., Any]) -> Callable[[Any], Any]:
    """In place of jaxtyping's, which binds arguments by their signature and checks them twice, at every call.

    A function without shapes has nothing that beartype alone would miss.
    """

    def check(checked: Any) -> Any:
        if inspect.isclass(checked):
            if is_dataclass(checked) and "__init__" in vars(checked):
                checked.__init__ = check(checked.__init__)
            return checked
        hints = [hint for annotation in checked.__annotations__.values() for hint in _parts(annotation)]
        shapes = [hint for hint in hints if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)]
        is_named_later = any(isinstance(hint, str | typing.ForwardRef) for hint in hints)
        is_of_values = any("{" in shape.dim_str for shape in shapes)
        if inspect.isgeneratorfunction(checked) or is_named_later or is_of_values:
            return _jaxtyped(typechecker=typechecker)(checked)
        return _with_shapes(beartype(checked)) if shapes else beartype(checked)

    return check


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in annotation if isinstance(annotation, list) else typing.get_args(annotation):
        yield from _parts(part)


def _with_shapes(checked: Callable[..., Any]) -> Callable[..., Any]:
    """An axis has one size in all arguments and the result of a call."""

    @functools.wraps(checked)
    def call(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        with _jaxtyped("context"):
            return checked(*arguments, **named)

    return call
