import math

import torch

from longtake.spatial.pinhole import fov_from_intrinsics, intrinsics_from_fov, unproject
from longtake.spatial.pose import invert_rigid, rigid_pose


def test_golden_points(golden):
    want = golden("pose")
    camera_from_world = rigid_pose(want["unproj_w2c"][..., :3], want["unproj_w2c"][..., 3])
    points = unproject(want["unproj_depth"], want["unproj_K"], invert_rigid(camera_from_world))
    want.check("unproj_points", points)


def test_field_of_view_is_clamped_for_intrinsics_only():
    fov_rad = torch.tensor([[0.0, math.pi], [-1.0, 4.0]])
    intrinsics = intrinsics_from_fov(fov_rad, 42, 70)
    assert intrinsics.isfinite().all()
    assert (intrinsics[:, [0, 1], [0, 1]] > 0).all()
    assert fov_rad.tolist() == [[0.0, torch.tensor(math.pi).item()], [-1.0, 4.0]]


def test_field_of_view_round_trip():
    fov_rad = torch.tensor([[0.4, 0.9], [1.2, 2.0]])
    torch.testing.assert_close(fov_from_intrinsics(intrinsics_from_fov(fov_rad, 42, 70), 42, 70), fov_rad)


def test_points_project_back_to_their_pixels():
    intrinsics = intrinsics_from_fov(torch.tensor([0.8, 1.1]), 6, 8)
    points = unproject(torch.full((6, 8), 3.0), intrinsics, torch.eye(4))
    pixels = points @ intrinsics.T / points[..., 2:]
    v, u = torch.meshgrid(torch.arange(6.0), torch.arange(8.0), indexing="ij")
    torch.testing.assert_close(pixels[..., :2], torch.stack([u, v], dim=-1), rtol=1e-5, atol=1e-5)
