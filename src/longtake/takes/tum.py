"""Trajectories as the TUM RGB-D benchmark writes them: `timestamp x y z qx qy qz qw`, a line for each pose."""

import logging
import math
import operator
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from longtake.errors import InputError
from longtake.spatial.pose import matrix_from_quaternion, quaternion_from_matrix, rigid_pose
from longtake.takes.number_rows import Row, not_increasing, read_table
from longtake.takes.trajectory import Trajectory

NUM_COLUMNS = 8
_MEANING = "timestamp x y z qx qy qz qw"
HEADING = f"# {_MEANING}"
"""The comment that opens a file."""
_SMALLEST_QUATERNION = 1e-9
# Many roundings of float64 wide, so that a quaternion comes back from its matrix to the same steps.
_QUATERNION_STEP = 2.0**-48
# Some component of a unit quaternion is as large as 0.5; a little less, for quarter turns have several of just that.
_SMALLEST_LEADER = 0.4
# Published files repeat a timestamp now and then (TUM's own truth of fr2/desk does, once in 20,957 lines); a file that
# does so often has lost digits.
_LARGEST_SHARE_OF_REPEATS = 0.01

_log = logging.getLogger(__name__)


def read_tum(path: Path) -> Trajectory:
    """The poses of a file; quaternions may have any length but none.

    Of lines with the same timestamp the last stands, as long as they are rare.
    """
    rows = read_table(path, NUM_COLUMNS, _MEANING)
    _check_rotations(path, rows)
    numbers = torch.tensor([row.numbers for row in _without_repeats(path, rows)], dtype=torch.float64)
    world_from_camera = rigid_pose(matrix_from_quaternion(numbers[:, 4:]), numbers[:, 1:4])
    return Trajectory(timestamp_s=numbers[:, 0].clone(), world_from_camera=world_from_camera)


def write_tum(path: Path, trajectory: Trajectory) -> None:
    """A file that `read_tum` reads back, times and centres to the last bit."""
    poses = zip(trajectory.timestamp_s.tolist(), trajectory.world_from_camera, strict=True)
    lines = [HEADING, *(tum_line(timestamp_s, pose) for timestamp_s, pose in poses)]
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); give another path.") from error


def tum_line(timestamp_s: float, world_from_camera: Float[Tensor, "4 4"]) -> str:
    """One pose as a line without its end; each number has the digits that bring it back exactly."""
    pose = world_from_camera.double()
    numbers = [timestamp_s, *pose[:3, 3].tolist(), *_written_quaternion(pose[:3, :3]).tolist()]
    return " ".join(map(repr, numbers))


def as_written(world_from_camera: Float64[Tensor, "*batch 4 4"]) -> Float64[Tensor, "*batch 4 4"]:
    """Poses as they are read back from their lines; those that come from here stay as they are, to the last bit."""
    rotation = matrix_from_quaternion(_written_quaternion(world_from_camera[..., :3, :3]))
    return rigid_pose(rotation, world_from_camera[..., :3, 3])


def _written_quaternion(rotation: Float64[Tensor, "*batch 3 3"]) -> Float64[Tensor, "*batch 4"]:
    """A unit quaternion of which three components are whole steps; the leading one follows from the length.

    Quaternion and matrix, each rounded, would change each other again and again. The steps absorb that.
    """
    quaternion = quaternion_from_matrix(rotation)
    leader = (quaternion.abs() >= _SMALLEST_LEADER).int().argmax(dim=-1, keepdim=True)
    others = ((quaternion / _QUATERNION_STEP).round() * _QUATERNION_STEP).scatter(-1, leader, 0)
    length = (1 - others.square().sum(dim=-1, keepdim=True)).sqrt()
    return others.scatter(-1, leader, length.copysign(quaternion.gather(-1, leader)))


def _check_rotations(path: Path, rows: Sequence[Row]) -> None:
    for row in rows:
        if math.hypot(*row.numbers[4:]) < _SMALLEST_QUATERNION:
            raise InputError(f"{path}, line {row.line}: expected a rotation, but the quaternion qx qy qz qw is zero.")


def _without_repeats(path: Path, rows: Sequence[Row]) -> list[Row]:
    repeats = [later for earlier, later in pairwise(rows) if earlier.numbers[0] == later.numbers[0]]
    are_rare = len(repeats) <= _LARGEST_SHARE_OF_REPEATS * len(rows)
    is_wrong = operator.lt if are_rare else operator.le
    for earlier, later in pairwise(rows):
        if is_wrong(later.numbers[0], earlier.numbers[0]):
            raise not_increasing(path, earlier, later)
    if repeats:
        _log.warning("%s repeats the timestamp of line %d; the last pose stands.", path, repeats[0].line)
    return [earlier for earlier, later in pairwise(rows) if earlier.numbers[0] < later.numbers[0]] + [rows[-1]]
