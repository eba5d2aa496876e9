"""Pose AUC: the share of frame pairs whose relative pose is right, averaged over how strictly one judges.

As in evaluations of VGGT and its relatives. The error of a pair is the larger of two angles: how far the relative
rotation is off, and how far the direction of the relative translation is. The AUC at T degrees is the mean, over the
whole degrees 1 to T, of the share of pairs with an error below that. It knows no scale and needs no alignment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from longtake.errors import SettingError
from longtake.evaluation.association import PosePairs
from longtake.evaluation.motion import direction_angle_deg, motion, rotation_error_deg, step_length
from longtake.evaluation.spacing import evenly_spaced

PUBLISHED_THRESHOLDS_DEG = (3, 5, 15, 30)
_FEWEST_FRAMES, _MOST_FRAMES = 2, 450
_LARGEST_ANGLE_DEG = 180
_STANDING_STILL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PoseAuc:
    """Shares from 0 to 1, one for each threshold."""

    threshold_deg: tuple[int, ...]
    auc: tuple[float, ...]
    num_frames: int
    """Of which all pairs were looked at."""
    error_deg_by_pair: Float64[Tensor, " pairs"]


def pose_auc(
    pairs: PosePairs,
    *,
    threshold_deg: Sequence[int] = PUBLISHED_THRESHOLDS_DEG,
    max_frames: int = _MOST_FRAMES,
    signed: bool = False,
) -> PoseAuc:
    """All pairs of all frames, or of `max_frames` evenly spaced ones where there are more.

    A direction and its opposite count as the same, as published figures have it; `signed` tells them apart. Where the
    truth stands still between two frames there is no direction and the rotation counts alone; where only the result
    stands still its direction is as wrong as can be.
    """
    _check_settings(threshold_deg, max_frames)
    frames = evenly_spaced(len(pairs), max_frames)
    error_deg = _error_deg(pairs.result[frames], pairs.truth[frames], signed=signed)
    return PoseAuc(
        threshold_deg=tuple(threshold_deg),
        auc=tuple(_auc(error_deg, limit) for limit in threshold_deg),
        num_frames=len(frames),
        error_deg_by_pair=error_deg,
    )


def _error_deg(
    result: Float64[Tensor, "frames 4 4"], truth: Float64[Tensor, "frames 4 4"], *, signed: bool
) -> Float64[Tensor, " pairs"]:
    start, end = torch.triu_indices(len(truth), len(truth), offset=1)
    result_motion, true_motion = motion(result, start, end), motion(truth, start, end)
    turned = rotation_error_deg(result_motion, true_motion)
    aside = direction_angle_deg(result_motion[:, :3, 3], true_motion[:, :3, 3])
    if not signed:
        aside = torch.minimum(aside, 180 - aside)
    aside = torch.where(_stands_still(result_motion, result), 180.0 if signed else 90.0, aside)
    return torch.where(_stands_still(true_motion, truth), turned, torch.maximum(turned, aside))


def _stands_still(
    between: Float64[Tensor, "pairs 4 4"], poses: Float64[Tensor, "frames 4 4"]
) -> Bool[Tensor, " pairs"]:
    """Whether a motion is no longer than rounding makes it, for a path of this length."""
    still: Tensor = between[:, :3, 3].norm(dim=-1) <= _STANDING_STILL * step_length(poses).sum()
    return still


def _auc(error_deg: Float64[Tensor, " pairs"], threshold_deg: int) -> float:
    degrees = torch.arange(1, threshold_deg + 1, dtype=torch.float64)
    num_below = torch.searchsorted(error_deg.sort().values, degrees)
    return float(num_below.double().mean()) / len(error_deg)


def _check_settings(threshold_deg: Sequence[int], max_frames: int) -> None:
    if not all(1 <= threshold <= _LARGEST_ANGLE_DEG for threshold in threshold_deg):
        raise SettingError(
            f"Thresholds must be whole degrees from 1 to {_LARGEST_ANGLE_DEG}, but {list(threshold_deg)} came."
        )
    if max_frames < _FEWEST_FRAMES:
        raise SettingError(f"Pairs need {_FEWEST_FRAMES} frames at least, but only {max_frames} were allowed.")
