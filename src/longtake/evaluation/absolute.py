"""Absolute trajectory error: how far each camera is from where it should be, once the whole result is aligned."""

from dataclasses import dataclass

from jaxtyping import Float64
from torch import Tensor

from longtake.evaluation.alignment_mode import AlignmentMode, truth_from_result
from longtake.evaluation.association import PosePairs
from longtake.evaluation.motion import path_length, rotation_error_deg
from longtake.evaluation.statistics import Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsoluteError:
    """Lengths are in the unit of the truth."""

    alignment_mode: AlignmentMode
    scale: float
    """By which the result was multiplied; 1 unless it was free."""
    translation: Statistics
    """Its `rmse` is what papers call ATE."""
    rotation_deg: Statistics
    path_length: float
    """Of the truth, from matched pose to matched pose."""
    timestamp_s: Float64[Tensor, " frames"]
    translation_by_frame: Float64[Tensor, " frames"]
    rotation_deg_by_frame: Float64[Tensor, " frames"]

    @property
    def share_of_path(self) -> float | None:
        """The translation's `rmse` over the length of the path; none where the truth stands still."""
        return self.translation.rmse / self.path_length if self.path_length > 0 else None


def absolute_error(pairs: PosePairs, *, alignment_mode: AlignmentMode = AlignmentMode.SIM3) -> AbsoluteError:
    """Distance of camera centres and angle between cameras, frame by frame.

    Only the centres decide the alignment, as is usual; the angles are whatever it leaves.
    """
    moved = truth_from_result(pairs, alignment_mode)
    result = moved.of_cameras(pairs.result)
    translation = (result[:, :3, 3] - pairs.truth[:, :3, 3]).norm(dim=-1)
    rotation_deg = rotation_error_deg(result, pairs.truth)
    return AbsoluteError(
        alignment_mode=alignment_mode,
        scale=float(moved.scale),
        translation=Statistics.of(translation),
        rotation_deg=Statistics.of(rotation_deg),
        path_length=float(path_length(pairs.truth)[-1]),
        timestamp_s=pairs.timestamp_s,
        translation_by_frame=translation,
        rotation_deg_by_frame=rotation_deg,
    )
