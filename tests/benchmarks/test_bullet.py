"""Scenes of pybullet's models: ways are those of a hand, and pictures, depth and poses belong together."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.bullet import BULLET_SCENES, bullet_intrinsics, orbit, write_bullet
from longtake.evaluation.motion import rotation_angle_deg
from longtake.spatial.pinhole import unproject
from longtake.takes.take import read_take

SIZE = (96, 128)


@pytest.mark.parametrize("name", BULLET_SCENES)
def test_ways_are_rigid_and_their_steps_small(name: str) -> None:
    scene = BULLET_SCENES[name]
    cameras = orbit(scene, 48)
    rotations = cameras[:, :3, :3]
    torch.testing.assert_close(rotations @ rotations.mT, torch.eye(3, dtype=torch.float64).expand(48, 3, 3))
    torch.testing.assert_close(torch.linalg.det(rotations), torch.ones(48, dtype=torch.float64))
    assert all(float(rotation_angle_deg(one.T @ other)) < 8 for one, other in pairwise(rotations))
    steps = cameras[:, :3, 3].diff(dim=0).norm(dim=-1)
    assert 0 < float(steps.min()) <= float(steps.max()) < 0.12 * scene.distance_m
    # y points down, z to what is looked at
    assert (cameras[:, 2, 1] < 0).all()
    ahead = torch.tensor(scene.target, dtype=torch.float64) - cameras[:, :3, 3]
    assert ((ahead / ahead.norm(dim=-1, keepdim=True) * cameras[:, :3, 2]).sum(dim=-1) > 0.95).all()


def test_field_of_view_is_that_of_the_width() -> None:
    camera = bullet_intrinsics(BULLET_SCENES["heap"], SIZE)
    half = torch.rad2deg(torch.atan((torch.tensor(127.5) - camera[0, 2]) / camera[0, 0]))
    assert float(half) == pytest.approx(65 / 2)
    assert camera[0, 0] == camera[1, 1]


@pytest.mark.extra
@pytest.mark.parametrize("name", BULLET_SCENES)
def test_points_of_one_frame_are_met_in_another(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pybullet")
    write_bullet(BULLET_SCENES[name], tmp_path / name, num_frames=8, size=SIZE)
    assert capfd.readouterr().out == ""
    take = read_take(tmp_path / name)
    assert len(take) == 8
    assert np.asarray(take.image(0)).std() > 5
    camera = bullet_intrinsics(BULLET_SCENES[name], SIZE)
    depth = torch.from_numpy(take.depth(0)).double()
    points = unproject(depth, camera, take.trajectory.world_from_camera[0])[depth > 0]
    camera_from_world = torch.linalg.inv(take.trajectory.world_from_camera[1])
    at = camera @ (camera_from_world[:3, :3] @ points.T + camera_from_world[:3, 3:])
    column, row = (at[:2] / at[2]).round().long()
    inside = (column >= 0) & (column < SIZE[1]) & (row >= 0) & (row < SIZE[0])
    met = torch.from_numpy(take.depth(1)).double()[row[inside], column[inside]]
    assert inside.double().mean() > 0.5
    assert ((met - at[2][inside]).abs() / at[2][inside]).median() < 0.02
