"""How well a run agrees with another of the same frames, and with the truth; means over worlds with their intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from longtake.evaluate.absolute import absolute_error
from longtake.evaluate.angles import rotation_angle_deg
from longtake.evaluate.association import PosePairs
from longtake.evaluate.depth import DepthPair, measure_depth
from longtake.evaluate.depth_alignment import DepthAlignment
from longtake.evaluate.motion import path_length

_RESAMPLES = 10_000
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Seen:
    """Depth and cameras of a whole clip, on the host."""

    depth: Float[Tensor, "frames height width"]
    world_from_camera: Float64[Tensor, "frames 4 4"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of one run with another, in the same world and unit: nothing is aligned."""

    depth_median: float
    """Over all pixels of all frames, of |depth - other| / other."""
    depth_p95: float
    rotation_deg: float
    """Mean over frames."""
    centre_share: float | None
    """Mean distance of camera centres over the length of the other run's path; none where that stands still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Of one run against the truth."""

    ate_share: float | None
    """Root mean square distance of camera centres after Sim(3) alignment, over the length of the true path."""
    rotation_deg: float
    """Mean over frames, after the same alignment."""
    depth_abs_rel: float
    """Mean of |depth - true| / true, one scale for the sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Over worlds; the interval is of 95 % confidence and needs two worlds."""

    mean: float
    low: float | None
    high: float | None


def agreement(run: Seen, full: Seen) -> Agreement:
    """How far a run is from the full one."""
    relative = ((run.depth - full.depth).abs() / full.depth).numpy()
    turned = full.world_from_camera[:, :3, :3].transpose(1, 2) @ run.world_from_camera[:, :3, :3]
    apart = (run.world_from_camera[:, :3, 3] - full.world_from_camera[:, :3, 3]).norm(dim=-1)
    path = float(path_length(full.world_from_camera)[-1])
    median, p95 = np.quantile(relative, (0.5, 0.95)).tolist()
    return Agreement(
        depth_median=median,
        depth_p95=p95,
        rotation_deg=float(rotation_angle_deg(turned).mean()),
        centre_share=float(apart.mean()) / path if path > 0 else None,
    )


def accuracy(run: Seen, truth: Seen) -> Accuracy:
    """How far a run is from the truth."""
    times = torch.arange(len(run.depth), dtype=torch.float64)
    error = absolute_error(PosePairs(timestamp_s=times, result=run.world_from_camera, truth=truth.world_from_camera))
    depth = measure_depth(
        lambda: [DepthPair(*pair) for pair in zip(run.depth, truth.depth, strict=True)], alignment=DepthAlignment.SCALE
    )
    return Accuracy(
        ate_share=error.share_of_path,
        rotation_deg=error.rotation_deg.mean,
        depth_abs_rel=depth.abs_rel,
    )


def mean_over_worlds(values: Sequence[float | None]) -> Mean | None:
    """With a bootstrap interval, the same each time; of the worlds that have a value, none where none has."""
    exact = np.array([value for value in values if value is not None])
    if not len(exact):
        return None
    if len(exact) < 2:
        return Mean(mean=float(exact.mean()), low=None, high=None)
    drawn = np.random.default_rng(0).integers(len(exact), size=(_RESAMPLES, len(exact)))
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(exact[drawn].mean(axis=1), (tail, 1 - tail)).tolist()
    return Mean(mean=float(exact.mean()), low=low, high=high)
