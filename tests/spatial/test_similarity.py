"""Similarities form a group that acts on points and cameras."""

import torch

from longtake.spatial.pose import matrix_from_quaternion, rigid_pose
from longtake.spatial.similarity import Similarity


def random_similarity(seed: int) -> Similarity:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(8, generator=generator, dtype=torch.float64)
    return Similarity(numbers[0].exp(), matrix_from_quaternion(numbers[1:5]), numbers[5:])


def test_similarities_form_a_group_that_acts_on_points() -> None:
    points = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    for seed in range(5):
        a, b, c = (random_similarity(3 * seed + k) for k in range(3))
        torch.testing.assert_close((a @ b).of_points(points), a.of_points(b.of_points(points)))
        torch.testing.assert_close(((a @ b) @ c).matrix, (a @ (b @ c)).matrix)
        torch.testing.assert_close((a.inverse() @ a).of_points(points), points)
        torch.testing.assert_close((a @ b).matrix, a.matrix @ b.matrix)
        torch.testing.assert_close(Similarity.identity(points.device).of_points(points.float()), points.float())


def test_moved_camera_sees_moved_points_at_scaled_depth() -> None:
    moved = random_similarity(1)
    camera = rigid_pose(random_similarity(2).rotation, random_similarity(2).translation)
    before_camera = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    world = before_camera @ camera[:3, :3].T + camera[:3, 3]
    after = moved.of_cameras(camera)
    again = (moved.of_points(world) - after[:3, 3]) @ after[:3, :3]
    torch.testing.assert_close(again, moved.scale * before_camera)
