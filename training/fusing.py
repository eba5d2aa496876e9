"""What a GPU runs as a few large kernels instead of many small ones."""

from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar

import torch

from longtake.geometry.model import GeometryModel

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


def fuse(model: GeometryModel) -> None:
    """From now on this model, which is on a GPU, is computed by kernels made for training. Needs Triton."""
    from training.fused_blocks import fuse_blocks
    from training.fused_patches import fuse_patches

    fuse_blocks(model)
    fuse_patches(model)
