import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.spatial.pinhole import unproject
from longtake.spatial.pose import (
    decode_pose,
    encode_pose,
    invert_encoding,
    invert_rigid,
    matrix_from_quaternion,
    nearest_rotation,
    quaternion_from_matrix,
    rigid_pose,
)

components = st.floats(-2, 2, allow_nan=False, width=32)


def quaternion(values):
    return torch.tensor(values, dtype=torch.float64)


def test_golden_matrices_and_quaternions(golden):
    want = golden("pose")
    want.check("mat", matrix_from_quaternion(want["quat_xyzw"]))
    want.check("quat_back", quaternion_from_matrix(want["mat"]))


@settings(max_examples=60, deadline=None)
@given(st.tuples(components, components, components, components).filter(lambda q: math.hypot(*q) > 1e-2))
def test_matrix_of_any_quaternion_is_a_rotation(values):
    matrix = matrix_from_quaternion(quaternion(values))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(torch.linalg.det(matrix), torch.tensor(1.0, dtype=torch.float64))


@settings(max_examples=60, deadline=None)
@given(st.tuples(components, components, components, components).filter(lambda q: math.hypot(*q) > 1e-2))
def test_round_trip_gives_the_unit_quaternion_with_positive_w(values):
    unit = quaternion(values) / quaternion(values).norm()
    back = quaternion_from_matrix(matrix_from_quaternion(quaternion(values)))
    assert back[3] >= 0
    torch.testing.assert_close(back.norm(), torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close((back @ unit).abs(), torch.tensor(1.0, dtype=torch.float64))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_half_turns_keep_the_largest_component_positive(axis):
    half_turn = torch.zeros(4)
    half_turn[axis] = 1
    assert torch.equal(quaternion_from_matrix(matrix_from_quaternion(-half_turn)), half_turn)


def test_zero_quaternion_turns_nothing_and_has_finite_gradients():
    zero = torch.zeros(2, 4, requires_grad=True)
    matrix = matrix_from_quaternion(zero)
    assert torch.equal(matrix, torch.eye(3).expand(2, 3, 3))
    matrix.sum().backward()
    assert zero.grad.isfinite().all()


def test_nearest_rotation_never_mirrors() -> None:
    matrix = torch.diag(torch.tensor([1.0, 1.0, -1.0]))
    rotation = nearest_rotation(matrix)
    assert float(torch.linalg.det(rotation)) == pytest.approx(1.0)
    turn = matrix_from_quaternion(torch.tensor([0.1, 0.2, 0.3, 0.9]))
    torch.testing.assert_close(nearest_rotation(turn * 3), turn)


def test_nearest_rotation_is_no_farther_than_any_other_and_proper() -> None:
    matrices = torch.randn(20, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    nearest = nearest_rotation(matrices)
    torch.testing.assert_close(torch.linalg.det(nearest), torch.ones(20, dtype=torch.float64))
    torch.testing.assert_close(nearest @ nearest.transpose(1, 2), torch.eye(3).double().expand(20, 3, 3))
    others = matrix_from_quaternion(torch.randn(500, 4, generator=torch.Generator().manual_seed(1)).double())
    distance = (matrices[:, None] - others).norm(dim=(2, 3)).amin(dim=1)
    assert ((matrices - nearest).norm(dim=(1, 2)) <= distance).all()
    for rotation in others[:5]:
        torch.testing.assert_close(nearest_rotation(rotation), rotation)


def random_poses(seed, count=16):
    generator = torch.Generator().manual_seed(seed)
    quaternions = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    translations = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    return rigid_pose(matrix_from_quaternion(quaternions), translations)


def test_golden_encodings_decode_and_encode(golden):
    want = golden("pose")
    world_from_camera, intrinsics = decode_pose(want["pose_enc"], 42, 70)
    want.check("mat34", world_from_camera[..., :3, :])
    want.check("K_42x70", intrinsics)
    want.check("pose_enc_back", encode_pose(world_from_camera, intrinsics, 42, 70))
    want.check("mat44_inverse", invert_rigid(world_from_camera))


def test_poses_form_a_group():
    first, second, third = (random_poses(seed) for seed in range(3))
    identity = torch.eye(4, dtype=torch.float64).expand(16, 4, 4)
    torch.testing.assert_close((first @ second) @ third, first @ (second @ third))
    torch.testing.assert_close(first @ invert_rigid(first), identity)
    torch.testing.assert_close(invert_rigid(first) @ first, identity)
    torch.testing.assert_close(invert_rigid(first @ second), invert_rigid(second) @ invert_rigid(first))
    torch.testing.assert_close(invert_rigid(identity), identity)


def test_encoding_round_trip_keeps_pose_and_field_of_view():
    world_from_camera = random_poses(3)
    encoding = torch.cat([torch.zeros(16, 7), torch.rand(16, 2) + 0.3], dim=-1).double()
    intrinsics = decode_pose(encoding, 294, 518)[1]
    back, intrinsics_back = decode_pose(encode_pose(world_from_camera, intrinsics, 294, 518), 294, 518)
    torch.testing.assert_close(back, world_from_camera)
    torch.testing.assert_close(intrinsics_back, intrinsics)


def test_zero_encoding_is_a_usable_camera():
    world_from_camera, intrinsics = decode_pose(torch.zeros(9), 42, 70)
    assert torch.equal(world_from_camera, torch.eye(4))
    assert intrinsics.isfinite().all()
    assert torch.linalg.inv(intrinsics).isfinite().all()


def test_inverse_encoding_is_of_the_inverse_pose():
    encoding = torch.randn(16, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    pose, intrinsics = decode_pose(encoding, 42, 70)
    inverse, intrinsics_of_inverse = decode_pose(invert_encoding(encoding), 42, 70)
    torch.testing.assert_close(inverse, invert_rigid(pose))
    assert torch.equal(intrinsics_of_inverse, intrinsics)
    torch.testing.assert_close(invert_encoding(invert_encoding(encoding)), encoding)
    assert torch.equal(decode_pose(invert_encoding(torch.zeros(9)), 42, 70)[0], torch.eye(4))


def test_golden_cameras_that_see_the_world_stand_in_it(vggt_golden):
    want = vggt_golden("geometry")
    size = tuple(want.settings["size"])
    world_from_camera, intrinsics = decode_pose(invert_encoding(want["pose_enc"]), *size)
    want.check("extrinsics_w2c", invert_rigid(world_from_camera)[:, :3])
    want.check("intrinsics", intrinsics)
    want.check("pose_enc_roundtrip", invert_encoding(encode_pose(world_from_camera, intrinsics, *size)))
    want.check("world_points", unproject(want["depth"], intrinsics, world_from_camera))
