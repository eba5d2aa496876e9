"""Models by name."""

from pathlib import Path

import torch

from longtake.geometry.model import GeometryModel
from longtake.hub.resolve import resolve
from longtake.weights.load import load_geometry


def load_model(
    name_or_path: Path | str, *, device: torch.device | str = "cpu", trunk_dtype: torch.dtype = torch.float32
) -> GeometryModel:
    """A model ready to answer, from a path, a preset's name or a place on the hub."""
    return load_geometry(resolve(name_or_path), device=device, trunk_dtype=trunk_dtype)
