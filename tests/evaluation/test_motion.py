"""Paths and motions against plain matrices; angles are exact where a cosine alone would fail."""

import math
from collections.abc import Callable

import pytest
import torch

from longtake.evaluation.association import PosePairs
from longtake.evaluation.motion import (
    direction_angle_deg,
    motion,
    path_length,
    rotation_angle_deg,
    step_length,
)
from longtake.spatial.pose import matrix_from_quaternion

ANGLES_DEG = [0.0, 1e-9, 1e-4, 1.0, 89.999999, 90.0, 135.0, 179.0, 179.9999999, 180.0]


def test_path_is_the_sum_of_steps(make_pairs: Callable[..., PosePairs]) -> None:
    poses = make_pairs(0, num_frames=4).truth
    steps = [float((poses[k + 1, :3, 3] - poses[k, :3, 3]).norm()) for k in range(3)]
    torch.testing.assert_close(step_length(poses), torch.tensor(steps).double())
    torch.testing.assert_close(path_length(poses), torch.tensor([0, steps[0], sum(steps[:2]), sum(steps)]).double())


def test_motion_is_the_later_camera_as_the_earlier_sees_it(make_pairs: Callable[..., PosePairs]) -> None:
    poses = make_pairs(0, num_frames=5).truth
    start, end = torch.tensor([0, 1, 4]), torch.tensor([3, 2, 0])
    torch.testing.assert_close(motion(poses, start, end), torch.linalg.inv(poses[start]) @ poses[end])


@pytest.mark.parametrize("angle_deg", ANGLES_DEG)
def test_rotation_angle_is_that_of_its_quaternion(angle_deg: float) -> None:
    half = math.radians(angle_deg) / 2
    for axis in torch.randn(10, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64):
        quaternion = torch.cat(
            [math.sin(half) * axis / axis.norm(), torch.tensor([math.cos(half)], dtype=torch.float64)]
        )
        assert float(rotation_angle_deg(matrix_from_quaternion(quaternion))) == pytest.approx(
            angle_deg, rel=1e-7, abs=1e-13
        )


@pytest.mark.parametrize("angle_deg", ANGLES_DEG)
def test_direction_angle_is_that_in_a_plane(angle_deg: float) -> None:
    x = torch.tensor([3.0, 0, 0]).double()
    angle = torch.tensor(math.radians(angle_deg), dtype=torch.float64)
    turned = 0.2 * torch.stack([angle.cos(), 0 * angle, angle.sin()])
    assert float(direction_angle_deg(x, turned)) == pytest.approx(angle_deg, rel=1e-12, abs=1e-13)


def test_direction_of_nothing_has_no_angle() -> None:
    assert float(direction_angle_deg(torch.zeros(3).double(), torch.ones(3).double())) == 0
