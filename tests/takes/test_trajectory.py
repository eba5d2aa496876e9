"""A trajectory is poses in the order of time, or refused in one sentence."""

import pytest
import torch

from longtake.errors import InputError
from longtake.takes.trajectory import Trajectory


def poses(num_poses: int) -> torch.Tensor:
    return torch.eye(4, dtype=torch.float64).repeat(num_poses, 1, 1)


def test_trajectory_counts_its_poses() -> None:
    assert len(Trajectory(timestamp_s=torch.tensor([0.5, 1.0]).double(), world_from_camera=poses(2))) == 2


@pytest.mark.parametrize("timestamps", [[0.0, 1.0, 1.0], [0.0, 1.0, 0.5]])
def test_timestamps_that_do_not_increase_are_refused(timestamps: list[float]) -> None:
    with pytest.raises(InputError, match=r"frame 2 at .* follows one at 1\.000000 s"):
        Trajectory(timestamp_s=torch.tensor(timestamps).double(), world_from_camera=poses(3))


def test_as_many_timestamps_as_poses_are_needed() -> None:
    with pytest.raises(InputError, match="2 timestamps and 3 poses"):
        Trajectory(timestamp_s=torch.arange(2).double(), world_from_camera=poses(3))


def test_one_pose_is_needed() -> None:
    with pytest.raises(InputError, match="one pose at least"):
        Trajectory(timestamp_s=torch.zeros(0).double(), world_from_camera=poses(0))


def test_numbers_must_be_finite() -> None:
    with pytest.raises(InputError, match="finite"):
        Trajectory(timestamp_s=torch.tensor([0.0, torch.inf]).double(), world_from_camera=poses(2))
    with pytest.raises(InputError, match="finite"):
        Trajectory(timestamp_s=torch.arange(2).double(), world_from_camera=poses(2) * torch.nan)
