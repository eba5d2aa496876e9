"""Functions that a GPU runs as a few large kernels instead of many small ones."""

from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor, nn

P = ParamSpec("P")
R = TypeVar("R")
_MOST_SHAPES = 64
"""Each is compiled for; clips come in several lengths."""


def fused(function: Callable[P, R], device: torch.device) -> Callable[P, R]:
    """The same function; on a GPU compiled, once for each shape of what it is given."""
    return _compiled(function) if device.type == "cuda" else function


@cache
def _compiled(function: Callable[P, R]) -> Callable[P, R]:
    torch._dynamo.config.recompile_limit = _MOST_SHAPES
    return torch.compile(function, dynamic=False)


def fused_for_any_length(function: Callable[P, R], device: torch.device) -> Callable[P, R]:
    """The same, compiled once for all numbers of rows, or of entries of a batch and their tokens."""
    return _compiled_for_any_length(function) if device.type == "cuda" else function


@cache
def _compiled_for_any_length(function: Callable[P, R]) -> Callable[P, R]:
    torch._dynamo.config.recompile_limit = _MOST_SHAPES
    torch._dynamo.config.specialize_float = True
    compiled = torch.compile(function)

    def call(*given: P.args, **named: P.kwargs) -> R:
        for one in given:
            if isinstance(one, Tensor) and not isinstance(one, nn.Parameter):
                for dim in range(min(2, one.ndim - 1)):
                    torch._dynamo.maybe_mark_dynamic(one, dim)
        return compiled(*given, **named)

    return call
