"""One truth, said by networks that speak of cameras either way."""

import torch

from longtake.geometry.config import CameraConfig
from longtake.geometry.model import Prediction
from longtake.runtime.alignment import place
from longtake.runtime.keyframes import ByFlow, KeptCamera
from longtake.runtime.steps import describe, pose_in_world
from longtake.spatial.pinhole import intrinsics_from_fov, unproject
from longtake.spatial.pose import encode_pose, invert_rigid, matrix_from_quaternion, rigid_pose
from longtake.spatial.similarity import Similarity
from longtake.types import FrameKind, Geometry

SIZE = (28, 42)
IN_WORLD = CameraConfig(depth=1, heads=1, iterations=1)
FROM_WORLD = CameraConfig(depth=1, heads=1, iterations=1, camera_from_world=True)


def truth(count: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cameras in the world, their intrinsics, and depth."""
    generator = torch.Generator().manual_seed(5)
    turned = torch.randn(count, 4, generator=generator)
    world_from_camera = rigid_pose(matrix_from_quaternion(turned), torch.randn(count, 3, generator=generator))
    intrinsics = intrinsics_from_fov(0.4 + torch.rand(count, 2, generator=generator), *SIZE)
    return world_from_camera, intrinsics, 1 + torch.rand(count, *SIZE, generator=generator)


def said(camera: CameraConfig) -> Geometry:
    """What is described of the truth when a network says it this way."""
    world_from_camera, intrinsics, depth = truth()
    pose = invert_rigid(world_from_camera) if camera.camera_from_world else world_from_camera
    points = unproject(depth, intrinsics, world_from_camera)
    prediction = Prediction(
        pose_iterations=encode_pose(pose, intrinsics, *SIZE)[None, None],
        depth=depth[None],
        depth_confidence=depth[None],
        points=points[None],
        points_confidence=depth[None],
        camera_points=None,
        camera_points_confidence=None,
    )
    times = tuple(map(float, range(len(depth))))
    kinds = (FrameKind.KEYFRAME,) * len(depth)
    return describe(prediction, camera, frame_index=range(len(depth)), timestamps_s=times, kinds=kinds)


def assert_same(a: Geometry, b: Geometry) -> None:
    for name in ("pose_encoding", "world_from_camera", "intrinsics", "depth", "points"):
        got, want = getattr(a, name), getattr(b, name)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_one_truth_said_either_way_is_the_same_geometry() -> None:
    assert_same(said(FROM_WORLD), said(IN_WORLD))
    torch.testing.assert_close(said(FROM_WORLD).world_from_camera, truth()[0], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(encode_pose(invert_rigid(truth()[0]), truth()[1], *SIZE), said(IN_WORLD).pose_encoding)


def test_points_of_depth_are_the_points_said() -> None:
    geometry = said(FROM_WORLD)
    seen = unproject(geometry.depth, geometry.intrinsics, geometry.world_from_camera)
    torch.testing.assert_close(seen, geometry.points, rtol=1e-4, atol=1e-4)


def test_windows_are_placed_alike() -> None:
    turn = matrix_from_quaternion(torch.tensor([0.1, -0.3, 0.2, 0.9]))
    moved = Similarity(torch.tensor(1.7), turn, torch.tensor([0.3, -1.0, 2.0]))
    assert_same(place(said(FROM_WORLD), moved), place(said(IN_WORLD), moved))


def test_flow_is_judged_alike() -> None:
    flows = []
    for geometry in (said(FROM_WORLD), said(IN_WORLD)):
        kept = KeptCamera(0, is_scale=False, pose_encoding=geometry.pose_encoding[0])
        thresholds = [float(2**power) for power in range(10)]
        flows.append([ByFlow(threshold).after(geometry.frames(1, 2), kept) for threshold in thresholds])
    assert flows[0] == flows[1]
    assert {True, False} == set(flows[0])


def test_what_says_the_world_stays_as_it_was_said() -> None:
    encoding = torch.randn(3, 9)
    assert pose_in_world(encoding, IN_WORLD) is encoding
    assert not torch.equal(pose_in_world(encoding, FROM_WORLD), encoding)
