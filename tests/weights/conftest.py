"""Checkpoints without values: the published names and shapes, and what other families make of them."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from longtake.weights.checkpoint import Checkpoint, Stored

GOLDEN = Path(__file__).parent.parent / "golden"

Shapes = dict[str, tuple[int, ...]]


def no_values() -> torch.Tensor:
    raise AssertionError("the values were read")


@pytest.fixture(scope="session")
def published_shapes() -> dict[str, Shapes]:
    """Shapes by published name, of the checkpoint and of its optional point head."""
    parts = json.loads(gzip.decompress((GOLDEN / "gct" / "published_keys.json.gz").read_bytes()))
    return {part: {key: tuple(shape) for key, shape in shapes.items()} for part, shapes in parts.items()}


@pytest.fixture(scope="session")
def vggt_shapes() -> Shapes:
    """Shapes by published name of VGGT-1B, and thereby of StreamVGGT."""
    shapes = json.loads(gzip.decompress((GOLDEN / "stream3r" / "vggt_keys.json.gz").read_bytes()))
    return {key: tuple(shape) for key, shape in shapes.items()}


@pytest.fixture(scope="session")
def without_values() -> Callable[..., Checkpoint]:
    """A checkpoint of these shapes whose values must not be read."""

    def make(shapes: Shapes, file: str = "weights.pt", dtype: torch.dtype = torch.float32) -> Checkpoint:
        return Checkpoint(Path(file), {key: Stored(shape, dtype, no_values) for key, shape in shapes.items()})

    return make
