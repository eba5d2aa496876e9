"""Angles are exact where a cosine alone would fail."""

import math

import pytest
import torch

from longtake.evaluation.angles import direction_angle_deg, rotation_angle_deg
from longtake.spatial.pose import matrix_from_quaternion

ANGLES_DEG = [0.0, 1e-9, 1e-4, 1.0, 89.999999, 90.0, 135.0, 179.0, 179.9999999, 180.0]


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
