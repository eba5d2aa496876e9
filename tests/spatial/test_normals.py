"""Normals of known surfaces, and the places that have none."""

import math

import pytest
import torch
from torch import Tensor

from longtake.errors import SettingError
from longtake.spatial.normals import normals_from_depth
from longtake.spatial.pinhole import intrinsics_from_fov, unproject
from longtake.spatial.pose import matrix_from_quaternion, rigid_pose

HEIGHT, WIDTH = 24, 32
INTRINSICS = intrinsics_from_fov(torch.tensor([0.9, 1.2], dtype=torch.float64), HEIGHT, WIDTH)
STILL = torch.eye(4, dtype=torch.float64)


def rays() -> Tensor:
    return unproject(torch.ones(HEIGHT, WIDTH, dtype=torch.float64), INTRINSICS, STILL)


def plane_depth(normal: Tensor, distance: float) -> Tensor:
    """Depth of the plane normal · x = -distance, before the camera wherever it is seen."""
    return -distance / (rays() @ normal)


@pytest.mark.parametrize("tilt", [(0.0, 0.0, -1.0), (0.5, 0.2, -1.0), (-0.3, -0.9, -0.9), (1.2, 0.1, -1.0)])
def test_plane_has_one_normal_however_oblique(tilt: tuple[float, float, float]) -> None:
    normal = torch.nn.functional.normalize(torch.tensor(tilt, dtype=torch.float64), dim=0)
    got = normals_from_depth(plane_depth(normal, 3.0), INTRINSICS, STILL, largest_kink=1e-6)
    want = normal.expand(HEIGHT - 2, WIDTH - 2, 3)
    torch.testing.assert_close(got[1:-1, 1:-1], want)


def test_normals_turn_with_the_camera() -> None:
    rotation = matrix_from_quaternion(torch.tensor([0.3, -0.2, 0.5, 0.8], dtype=torch.float64))
    camera = rigid_pose(rotation, torch.tensor([4.0, 5.0, 6.0], dtype=torch.float64))
    depth = plane_depth(torch.tensor([0.1, 0.2, -0.9], dtype=torch.float64), 2.0)
    still = normals_from_depth(depth, INTRINSICS, STILL)
    torch.testing.assert_close(normals_from_depth(depth, INTRINSICS, camera), still @ rotation.T)


def test_normals_of_a_ball_point_out_of_its_centre() -> None:
    centre, radius = torch.tensor([0.1, -0.2, 4.0], dtype=torch.float64), 1.5
    along = torch.nn.functional.normalize(rays(), dim=-1)
    nearest = along @ centre
    under_root = nearest.square() - centre.square().sum() + radius**2
    hit = under_root > 0.3 * radius**2
    distance = nearest - under_root.clamp_min(0).sqrt()
    depth = torch.where(hit, distance * along[..., 2], torch.inf)
    normals = normals_from_depth(depth, INTRINSICS, STILL)
    known = normals.norm(dim=-1) > 0.5
    outward = (unproject(torch.where(hit, depth, 1), INTRINSICS, STILL) - centre) / radius
    assert known.sum() > 50
    assert float((normals * outward).sum(dim=-1)[known].min()) > 0.99


def test_normals_face_the_camera_and_have_unit_length_or_none() -> None:
    depth = 2 + torch.rand(HEIGHT, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    normals = normals_from_depth(depth, INTRINSICS, STILL, largest_kink=10.0)
    towards = (normals * unproject(depth, INTRINSICS, STILL)).sum(dim=-1)
    lengths = normals[1:-1, 1:-1].norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))
    assert (towards[1:-1, 1:-1] < 0).all()
    borders = [normals[0], normals[-1], normals[:, 0], normals[:, -1]]
    assert all(float(border.abs().max()) == 0 for border in borders)


def inside(*, without: list[tuple[slice, slice]]) -> Tensor:
    """Pixels off the border, without some."""
    known = torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
    known[1:-1, 1:-1] = True
    for rows, columns in without:
        known[rows, columns] = False
    return known


def test_pixels_beside_a_jump_have_no_normal() -> None:
    across, down = (torch.full((HEIGHT, WIDTH), 2.0, dtype=torch.float64) for _ in range(2))
    across[:, 20:] = 2.3
    down[:7] = 1.8
    known = [normals_from_depth(depth, INTRINSICS, STILL).norm(dim=-1) > 0 for depth in (across, down)]
    assert torch.equal(known[0], inside(without=[(slice(None), slice(19, 21))]))
    assert torch.equal(known[1], inside(without=[(slice(6, 8), slice(None))]))
    loose = normals_from_depth(across, INTRINSICS, STILL, largest_kink=0.2).norm(dim=-1) > 0
    assert torch.equal(loose, inside(without=[]))


@pytest.mark.parametrize("hole", [torch.nan, torch.inf, 0.0, -1.0])
@pytest.mark.parametrize("depth_around", [1.0, 2.0])
def test_pixels_beside_a_hole_have_no_normal(hole: float, depth_around: float) -> None:
    depth = torch.full((HEIGHT, WIDTH), depth_around, dtype=torch.float64)
    depth[10, 5] = hole
    known = normals_from_depth(depth, INTRINSICS, STILL).norm(dim=-1) > 0
    cross = [(slice(10, 11), slice(4, 7)), (slice(9, 12), slice(5, 6))]
    assert torch.equal(known, inside(without=cross))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 5), (5, 2), (1, 9)])
def test_image_too_small_for_differences_has_no_normals(height: int, width: int) -> None:
    normals = normals_from_depth(torch.ones(height, width, dtype=torch.float64), INTRINSICS, STILL)
    assert normals.shape == (height, width, 3)
    assert not normals.any()


@pytest.mark.parametrize("largest_kink", [0.0, -1.0, math.nan])
def test_largest_kink_must_be_positive(largest_kink: float) -> None:
    with pytest.raises(SettingError, match="largest kink of a surface must be positive"):
        normals_from_depth(torch.ones(4, 4, dtype=torch.float64), INTRINSICS, STILL, largest_kink=largest_kink)


def test_normals_are_those_of_vectors_pixel_by_pixel() -> None:
    """Against the definition, a pixel at a time."""
    random = torch.Generator().manual_seed(3)
    depth = 2 + 0.02 * torch.rand(HEIGHT, WIDTH, generator=random, dtype=torch.float64)
    depth[5, 7], depth[9, 9] = torch.nan, 0.0
    rotation = matrix_from_quaternion(torch.tensor([0.3, -0.2, 0.5, 0.8], dtype=torch.float64))
    got = normals_from_depth(depth, INTRINSICS, rigid_pose(rotation, torch.zeros(3, dtype=torch.float64)))
    points = unproject(depth, INTRINSICS, STILL)
    for row in range(1, HEIGHT - 1):
        for column in range(1, WIDTH - 1):
            want = torch.linalg.cross(
                points[row, column + 1] - points[row, column - 1], points[row + 1, column] - points[row - 1, column]
            )
            towards = -torch.sign(want @ points[row, column])
            unit = rotation @ (towards * want / want.norm())
            known = want.isfinite().all() & (depth[row, column] > 0)
            beside_nothing = (depth[[row - 1, row + 1], column] == 0).any() | (
                depth[row, [column - 1, column + 1]] == 0
            ).any()
            torch.testing.assert_close(
                got[row, column], unit if known and not beside_nothing else torch.zeros_like(unit)
            )
