"""A run against the truth in a few numbers, and what these are over many worlds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from longtake.evaluation.absolute import absolute_error
from longtake.evaluation.agreement import ClipGeometry, bootstrap_interval
from longtake.evaluation.association import PosePairs
from longtake.evaluation.depth import DepthErrors, DepthPair, measure_depth
from longtake.evaluation.depth_alignment import DepthAlignment
from longtake.evaluation.motion import motion, rotation_error_deg
from longtake.evaluation.relative import relative_error
from longtake.evaluation.scale_drift import scale_drift
from longtake.spatial.pinhole import fov_from_intrinsics


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Of one run; cameras are aligned by Sim(3) on their centres, depth by one scale for the whole walk.

    That scale is the median of true / predicted over all pixels of all frames; the cameras' own scale plays no part.
    """

    ate_share: float | None
    """Root mean square distance of camera centres over the length of the true path; none where that stands still."""
    ate_m: float
    """The same distance, in metres of the true world."""
    rotation_deg: float
    """Median over frames, after the alignment of centres: on a straight way those say nothing of roll."""
    rotation_since_first_deg: float
    """Median over the frames after the first of how wrong the turn since then is: needs no alignment."""
    step_rotation_deg: float
    """Root mean square error of the turn from each frame to the next."""
    step_share: float | None
    """The same of the step's length and direction, over the mean length of the true steps."""
    scale_range: float | None
    """Largest local scale over the smallest; none where it is undefined or infinite."""
    scale_drift_percent: float | None
    """Slope of the local scale, up or down, per 100 frames."""
    depth_abs_rel: float
    """Mean of |depth - true| / true."""
    depth_delta_1: float
    """Share of pixels within a factor of 1.25 of the truth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Of one figure over worlds; the interval is of the median, of 95 % confidence, and needs two worlds."""

    num_worlds: int
    """Those that have the figure."""
    median: float
    lower_quartile: float
    upper_quartile: float
    low: float | None
    high: float | None


def score(run: ClipGeometry, truth: ClipGeometry) -> Score:
    """How far a run is from the truth; three frames at least."""
    pairs = paired(run.world_from_camera, truth.world_from_camera)
    absolute, relative, drift = absolute_error(pairs), relative_error(pairs), scale_drift(pairs)
    depth = depth_errors(run.depth, truth.depth)
    mean_step = absolute.path_length / (len(pairs) - 1)
    return Score(
        ate_share=absolute.share_of_path,
        ate_m=absolute.translation.rmse,
        rotation_deg=absolute.rotation_deg.median,
        rotation_since_first_deg=float(_turn_error_deg(pairs).quantile(0.5)),
        step_rotation_deg=relative.rotation_deg.rmse,
        step_share=relative.translation.rmse / mean_step if mean_step > 0 else None,
        scale_range=None if drift is None else _finite(drift.largest_over_smallest),
        scale_drift_percent=None if drift is None else abs(drift.percent_per_100_frames),
        depth_abs_rel=depth.abs_rel,
        depth_delta_1=depth.delta_1,
    )


def paired(result: Float64[Tensor, "frames 4 4"], truth: Float64[Tensor, "frames 4 4"]) -> PosePairs:
    """Cameras of the same frames, counted instead of timed."""
    return PosePairs(timestamp_s=torch.arange(len(truth), dtype=torch.float64), result=result, truth=truth)


def depth_errors(
    predicted: Float[Tensor, "frames height width"], true: Float[Tensor, "frames height width"]
) -> DepthErrors:
    """With one scale for all frames."""
    return measure_depth(
        lambda: [DepthPair(*pair) for pair in zip(predicted, true, strict=True)], alignment=DepthAlignment.SCALE
    )


def fov_error_deg(found: Float[Tensor, "frames 3 3"], true: Float[Tensor, "3 3"], *, height: int, width: int) -> float:
    """Mean over frames, vertical and horizontal, of how wrong the field of view is."""
    apart = fov_from_intrinsics(found.double(), height, width) - fov_from_intrinsics(true.double(), height, width)
    return float(apart.abs().rad2deg().mean())


def focal_error_share(found: Float[Tensor, "frames 3 3"], true: Float[Tensor, "3 3"]) -> float:
    """Mean over frames, vertical and horizontal, of how wrong the focal length is, over the true one."""
    focal, true_focal = (each.double().diagonal(dim1=-2, dim2=-1)[..., :2] for each in (found, true))
    return float((focal / true_focal - 1).abs().mean())


def summary_over_worlds(values: Sequence[float | None]) -> Summary | None:
    """Of the worlds that have a value, none where none has; the bootstrap is the same each time."""
    exact = np.array([value for value in values if value is not None])
    if not len(exact):
        return None
    lower, median, upper = np.quantile(exact, (0.25, 0.5, 0.75)).tolist()
    low, high = bootstrap_interval(exact, np.median)
    return Summary(num_worlds=len(exact), median=median, lower_quartile=lower, upper_quartile=upper, low=low, high=high)


def _turn_error_deg(pairs: PosePairs) -> Float64[Tensor, " later_frames"]:
    later = torch.arange(1, len(pairs))
    result, truth = (motion(poses, torch.zeros_like(later), later) for poses in (pairs.result, pairs.truth))
    return rotation_error_deg(result, truth)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
