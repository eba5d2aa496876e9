import torch

from longtake.spatial.pinhole import unproject
from longtake.spatial.pose import (
    decode_pose,
    encode_pose,
    invert_encoding,
    invert_rigid,
    matrix_from_quaternion,
    rigid_pose,
)


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
