"""Scale drift: how the unit of length of a result wanders along a trajectory."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from longtake.errors import SettingError
from longtake.evaluation.alignment_mode import AlignmentMode, move_onto_truth
from longtake.evaluation.association import PosePairs
from longtake.evaluation.motion import path_length

_SEGMENTS = 10
_STANDING_STILL = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDrift:
    """The local scale is the way the aligned result goes within a segment over the way the truth goes.

    A result of the right shape and one scale throughout has no drift: a ratio of 1 and a slope of 0.
    """

    segment_steps: int
    """From frame to frame within a segment; a segment begins at every frame that leaves room for it."""
    largest_over_smallest: float
    """Of the local scales; infinite where the result stands still within a segment."""
    percent_per_100_frames: float
    """Slope of the straight line through the local scales, in percent of their mean; above 0 where the result grows."""
    timestamp_s: Float64[Tensor, " segments"]
    """Of each segment's middle frame."""
    local_scale: Float64[Tensor, " segments"]


def scale_drift(
    pairs: PosePairs, *, segment_steps: int | None = None, alignment_mode: AlignmentMode = AlignmentMode.SIM3
) -> ScaleDrift | None:
    """Segments are a tenth of the trajectory unless given, and all of it where it is shorter than that.

    Those within which the truth goes less than a hundredth of the mean way say nothing of scale and are left out. None
    where the truth or the result goes nowhere.
    """
    if segment_steps is not None and segment_steps < 1:
        raise SettingError(f"A segment needs 1 step at least, but {segment_steps} came.")
    steps = min(segment_steps or max(1, (len(pairs) - 1) // _SEGMENTS), len(pairs) - 1)
    moved = move_onto_truth(pairs, alignment_mode)
    result, truth = (path[steps:] - path[:-steps] for path in map(path_length, (moved.result, moved.truth)))
    start = torch.nonzero(truth > _STANDING_STILL * truth.mean()).squeeze(-1)
    local_scale = result[start] / truth[start]
    if not local_scale.sum() > 0:
        return None
    slope = _slope(start.double(), local_scale) / local_scale.mean()
    return ScaleDrift(
        segment_steps=steps,
        largest_over_smallest=float(local_scale.max() / local_scale.min()),
        percent_per_100_frames=float(100 * 100 * slope),
        timestamp_s=pairs.timestamp_s[start + steps // 2],
        local_scale=local_scale,
    )


def _slope(x: Float64[Tensor, " n"], y: Float64[Tensor, " n"]) -> Float64[Tensor, ""]:
    """Of the line with the least squared distance in y; level for a single point."""
    from_mean = x - x.mean()
    spread = from_mean.square().sum()
    return (from_mean * y).sum() / torch.where(spread > 0, spread, 1)
