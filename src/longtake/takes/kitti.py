"""Trajectories as the KITTI odometry benchmark writes them: the 12 numbers of a 3×4 pose, row by row, on each line."""

import math
from itertools import pairwise
from pathlib import Path

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.spatial.pose import nearest_rotation, rigid_pose
from longtake.takes.number_rows import Row, not_increasing, read_table
from longtake.takes.trajectory import Trajectory

NUM_COLUMNS = 12
_MEANING = "the rows of a 3x4 matrix, world from camera"
_MEANING_OF_TIMES = "a timestamp in seconds"
_LARGEST_SKEW = 1e-3


def read_kitti(path: Path, *, times: Path | None = None, fps: float | None = None) -> Trajectory:
    """The poses of a file, timed by a file of one timestamp a line, by a frame rate, or not at all.

    Each rotation is replaced by the nearest true one, for the files are rounded.
    """
    if times is not None and fps is not None:
        raise SettingError(f"{path} takes either a file of timestamps or a frame rate, not both; leave one out.")
    rows = read_table(path, NUM_COLUMNS, _MEANING)
    matrices = torch.tensor([row.numbers for row in rows], dtype=torch.float64).view(-1, 3, 4)
    _check_rotations(path, rows, matrices[:, :, :3])
    return Trajectory(
        timestamp_s=_count_times(len(rows), fps) if times is None else _read_times(path, times, len(rows)),
        world_from_camera=rigid_pose(nearest_rotation(matrices[:, :, :3]), matrices[:, :, 3]),
        is_timed=times is not None or fps is not None,
    )


def kitti_line(world_from_camera: Float[Tensor, "4 4"]) -> str:
    """One pose as a line without its end; each number has the digits that bring it back exactly."""
    return " ".join(map(repr, world_from_camera.double()[:3].flatten().tolist()))


def _check_rotations(path: Path, rows: list[Row], rotation: Float64[Tensor, "frames 3 3"]) -> None:
    skew = (rotation @ rotation.transpose(1, 2) - torch.eye(3).double()).abs().amax(dim=(1, 2))
    wrong = (skew > _LARGEST_SKEW) | (torch.linalg.det(rotation) < 0)
    if wrong.any():
        row = rows[int(wrong.int().argmax())]
        raise InputError(
            f"{path}, line {row.line}: columns 1-3, 5-7 and 9-11 must be a rotation to within {_LARGEST_SKEW:g}, but "
            f"they scale, shear or mirror; check that each line holds {_MEANING}."
        )


def _read_times(path: Path, times: Path, num_poses: int) -> Float64[Tensor, " frames"]:
    rows = read_table(times, 1, _MEANING_OF_TIMES)
    if len(rows) != num_poses:
        raise InputError(f"{times} has {len(rows)} timestamps, but {path} has {num_poses} poses; they must be as many.")
    for earlier, later in pairwise(rows):
        if later.numbers[0] <= earlier.numbers[0]:
            raise not_increasing(times, earlier, later)
    return torch.tensor([row.numbers[0] for row in rows], dtype=torch.float64)


def _count_times(num_poses: int, fps: float | None) -> Float64[Tensor, " frames"]:
    frames = torch.arange(num_poses, dtype=torch.float64)
    if fps is None:
        return frames
    if not (math.isfinite(fps) and fps > 0):
        raise SettingError(f"A frame rate must be a positive number, but {fps:g} came.")
    return frames / fps
