"""How well a run agrees with another of the same frames; means over worlds, and intervals by drawing worlds again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64
from torch import Tensor

from longtake.evaluation.motion import path_length, rotation_error_deg
from longtake.types import Geometry

_RESAMPLES = 10_000
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class ClipGeometry:
    """Depth and cameras of all frames of a clip, on the host."""

    depth: Float[Tensor, "frames height width"]
    world_from_camera: Float64[Tensor, "frames 4 4"]

    @classmethod
    def of(cls, geometry: Geometry) -> "ClipGeometry":
        return cls(geometry.depth.cpu(), geometry.world_from_camera.cpu().double())


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
class Mean:
    """Over worlds; the interval is of 95 % confidence and needs two worlds."""

    mean: float
    low: float | None
    high: float | None


def agreement(run: ClipGeometry, full: ClipGeometry) -> Agreement:
    """How far a run is from the full one."""
    relative = ((run.depth - full.depth).abs() / full.depth).numpy()
    apart = (run.world_from_camera[:, :3, 3] - full.world_from_camera[:, :3, 3]).norm(dim=-1)
    path = float(path_length(full.world_from_camera)[-1])
    median, p95 = np.quantile(relative, (0.5, 0.95)).tolist()
    return Agreement(
        depth_median=median,
        depth_p95=p95,
        rotation_deg=float(rotation_error_deg(run.world_from_camera, full.world_from_camera).mean()),
        centre_share=float(apart.mean()) / path if path > 0 else None,
    )


def mean_over_worlds(values: Sequence[float | None]) -> Mean | None:
    """With a bootstrap interval, the same each time; of the worlds that have a value, none where none has."""
    exact = np.array([value for value in values if value is not None])
    if not len(exact):
        return None
    low, high = bootstrap_interval(exact, np.mean)
    return Mean(mean=float(exact.mean()), low=low, high=high)


def bootstrap_interval(
    values: Float64[np.ndarray, "worlds"], statistic: Callable[..., Float64[np.ndarray, "resamples"]]
) -> tuple[float | None, float | None]:
    """Of 95 % confidence, of a statistic such as `numpy.mean`; the same each time, none of fewer than two worlds."""
    if len(values) < 2:
        return None, None
    drawn = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(statistic(values[drawn], axis=1), (tail, 1 - tail)).tolist()
    return low, high
