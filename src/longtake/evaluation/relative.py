"""Relative pose error: how wrong the motion between two frames is, whatever went wrong before them."""

import math
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.evaluation.alignment_mode import AlignmentMode, move_onto_truth
from longtake.evaluation.association import PosePairs
from longtake.evaluation.motion import motion, path_length, rotation_error_deg, step_length
from longtake.evaluation.statistics import Statistics

_PATH_TOLERANCE = 0.1


class DeltaUnit(StrEnum):
    """In what the distance between two compared frames is given."""

    FRAMES = "frames"
    """Matched poses."""
    METRES = "metres"
    """Way along the path, in the unit of the truth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Which frames are compared with which.

    Consecutive pairs end where the next begins; in metres, at the first frame that is `length` or more away. All pairs
    begin at every frame; in metres, they end at the frame whose distance is nearest to `length`, if within a tenth.
    """

    length: float = 1.0
    unit: DeltaUnit = DeltaUnit.FRAMES
    all_pairs: bool = False
    along_result: bool = False
    """Measure metres along the aligned result (evo's default) instead of along the truth."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.length) and self.length > 0):
            raise SettingError(f"The distance between compared frames must be positive, but {self.length:g} came.")
        if self.unit is DeltaUnit.FRAMES and not self.length.is_integer():
            raise SettingError(f"A distance in frames must be a whole number, but {self.length:g} came.")

    def __str__(self) -> str:
        return f"{self.length:g} {self.unit if self.length != 1 else self.unit.removesuffix('s')}"


NEXT_FRAME = Delta()


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeError:
    """Lengths are in the unit of the truth."""

    alignment_mode: AlignmentMode
    delta: Delta
    translation: Statistics
    rotation_deg: Statistics
    timestamp_s: Float64[Tensor, " pairs"]
    """Of each pair's later frame."""
    translation_by_pair: Float64[Tensor, " pairs"]
    rotation_deg_by_pair: Float64[Tensor, " pairs"]


def relative_error(
    pairs: PosePairs, *, delta: Delta = NEXT_FRAME, alignment_mode: AlignmentMode = AlignmentMode.SIM3
) -> RelativeError:
    """Length and angle of `truth_motion⁻¹ · result_motion`, from one frame to the next unless `delta` says otherwise.

    A motion is the later camera as the earlier sees it, so of the alignment only its scale matters: under `SIM3` the
    result's motions are multiplied by the scale that fits the whole trajectory best, otherwise left as they are.
    """
    moved = move_onto_truth(pairs, alignment_mode)
    start, end = _frames_apart(moved.result if delta.along_result else moved.truth, delta)
    result, truth = motion(moved.result, start, end), motion(moved.truth, start, end)
    translation = (result[:, :3, 3] - truth[:, :3, 3]).norm(dim=-1)
    rotation_deg = rotation_error_deg(result, truth)
    return RelativeError(
        alignment_mode=alignment_mode,
        delta=delta,
        translation=Statistics.of(translation),
        rotation_deg=Statistics.of(rotation_deg),
        timestamp_s=pairs.timestamp_s[end],
        translation_by_pair=translation,
        rotation_deg_by_pair=rotation_deg,
    )


def _frames_apart(
    poses: Float64[Tensor, "frames 4 4"], delta: Delta
) -> tuple[Int64[Tensor, " pairs"], Int64[Tensor, " pairs"]]:
    if delta.unit is DeltaUnit.FRAMES:
        start, end = _by_count(len(poses), delta)
    elif delta.all_pairs:
        start, end = _at_path(path_length(poses), delta.length)
    else:
        start, end = _after_path(step_length(poses), delta.length)
    if not len(start):
        way = float(step_length(poses).sum())
        raise InputError(
            f"No two of {len(poses)} matched poses on a path of {way:g} are {delta.length:g} {delta.unit} apart; "
            "choose a smaller distance."
        )
    return start, end


def _by_count(num_poses: int, delta: Delta) -> tuple[Int64[Tensor, " pairs"], Int64[Tensor, " pairs"]]:
    length = min(int(delta.length), num_poses)
    start = torch.arange(0, num_poses - length, 1 if delta.all_pairs else length)
    return start, start + length


def _after_path(
    steps: Float64[Tensor, " steps"], length: float
) -> tuple[Int64[Tensor, " pairs"], Int64[Tensor, " pairs"]]:
    ends, gone = [0], 0.0
    for frame, step in enumerate(steps.tolist(), start=1):
        gone += step
        if gone >= length:
            ends.append(frame)
            gone = 0.0
    return torch.tensor(ends[:-1], dtype=torch.int64), torch.tensor(ends[1:], dtype=torch.int64)


def _at_path(
    path: Float64[Tensor, " frames"], length: float
) -> tuple[Int64[Tensor, " pairs"], Int64[Tensor, " pairs"]]:
    """Of frames at the same distance, those that stand still, the first counts."""
    start = torch.arange(len(path) - 1)
    after = torch.searchsorted(path, path[:-1] + length).clamp(max=len(path) - 1)
    before = torch.searchsorted(path, path[(after - 1).clamp(min=0)])
    miss_after, miss_before = ((path[end] - path[:-1] - length).abs() for end in (after, before))
    end = torch.where(miss_before <= miss_after, before, after)
    near = torch.minimum(miss_before, miss_after) <= _PATH_TOLERANCE * length
    return start[near], end[near]
