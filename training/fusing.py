"""Functions and modules that a GPU runs as a few large kernels instead of many small ones."""

from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar

import torch
from torch import nn

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


def fuse(module: nn.Module) -> None:
    """The same for a module, from now on."""
    torch._dynamo.config.recompile_limit = _MOST_SHAPES
    module.compile(dynamic=False)
