"""Geometry models from files and to files: strict, one tensor at a time, each straight to where and what it will be."""

from pathlib import Path

import torch

from longtake import __version__
from longtake.errors import SettingError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.memory.saved import Pieces, write_tensors
from longtake.weights.checkpoint import open_checkpoint
from longtake.weights.fit import fit_geometry
from longtake.weights.published import Family


def load_geometry(
    path: Path | str,
    config: GeometryConfig | None = None,
    family: Family | None = None,
    *,
    device: torch.device | str = "cpu",
    trunk_dtype: torch.dtype = torch.float32,
) -> GeometryModel:
    """A model ready to answer, from a published checkpoint or from what `save_geometry` wrote.

    Nothing is left as it was initialised, and beside the model itself memory grows by one tensor at most.
    """
    if not trunk_dtype.is_floating_point:
        raise SettingError(f"Expected a float type for the trunk, got {trunk_dtype}; take float32 or bfloat16.")
    fitted = fit_geometry(open_checkpoint(path), config, family)
    products = fitted.skeleton.product_weights()
    state = {
        # the copy lets go of the file, which may change or vanish while the model lives
        name: stored.read().to(
            device, trunk_dtype if name in products else torch.float32, copy=True, memory_format=torch.contiguous_format
        )
        for name, stored in fitted.tensors.items()
    }
    fitted.skeleton.load_state_dict(state, assign=True)
    return fitted.skeleton.eval().requires_grad_(requires_grad=False)


def save_geometry(model: GeometryModel, path: Path | str) -> None:
    """Write a model under our names, with its configuration, as one safetensors file."""
    # wide types first, so that each tensor starts at a multiple of its own width
    state = sorted(model.state_dict().items(), key=lambda item: -item[1].dtype.itemsize)
    record = {"longtake": __version__, "config": model.config.to_json()}
    write_tensors(Path(path), {name: Pieces.of(tensor) for name, tensor in state}, record)
