"""Rotations, rigid poses as 4×4 matrices, and the nine numbers in which the networks speak of a camera.

Within longtake the nine numbers say `world_from_camera`. Some networks say `camera_from_world` in the same layout;
`invert_encoding` turns one into the other.

0       3             7        9
│ centre │ quaternion  │ fov    │     camera centre in the world; rotation of camera axes into the world (x y z w,
│ x y z  │ x y z w     │ v    h │     any length); vertical and horizontal field of view in radians
"""

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.spatial.pinhole import fov_from_intrinsics, intrinsics_from_fov


def matrix_from_quaternion(quaternion: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch 3 3"]:
    """The rotation of a quaternion of any length; the zero quaternion turns nothing."""
    square = quaternion.square().sum(dim=-1)
    nonzero = square > 0
    factor = torch.where(nonzero, 2 / torch.where(nonzero, square, 1), 0)
    x, y, z, w = quaternion.unbind(dim=-1)
    rows = [
        [1 - factor * (y * y + z * z), factor * (x * y - z * w), factor * (x * z + y * w)],
        [factor * (x * y + z * w), 1 - factor * (x * x + z * z), factor * (y * z - x * w)],
        [factor * (x * z - y * w), factor * (y * z + x * w), 1 - factor * (x * x + y * y)],
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def quaternion_from_matrix(matrix: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 4"]:
    """The unit quaternion with `w ≥ 0`; at `w = 0` its component of largest magnitude is positive."""
    rows = _four_times_outer_product(matrix)
    largest = rows.diagonal(dim1=-2, dim2=-1).argmax(dim=-1)
    row = rows.take_along_dim(largest[..., None, None], dim=-2).squeeze(-2)
    unit = row / row.norm(dim=-1, keepdim=True)
    return torch.where(unit[..., 3:] < 0, -unit, unit)


def nearest_rotation(matrix: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 3 3"]:
    """The rotation closest to a matrix, never a reflection.

    Computed on the CPU: on a GPU the first decomposition of a process would load a library for half a second or more.
    """
    left, _, right = torch.linalg.svd(matrix.cpu())
    last = torch.linalg.det(left @ right).sign()
    flip = torch.stack([torch.ones_like(last), torch.ones_like(last), last], dim=-1)
    rotation: Tensor = (left * flip[..., None, :]) @ right
    return rotation.to(matrix.device)


def _four_times_outer_product(matrix: Float[Tensor, "*batch 3 3"]) -> Float[Tensor, "*batch 4 4"]:
    """4 q qᵀ, linear in the matrix; each row is the quaternion times one of its components."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = (row.unbind(dim=-1) for row in matrix.unbind(dim=-2))
    rows = [
        [1 + xx - yy - zz, xy + yx, xz + zx, zy - yz],
        [xy + yx, 1 - xx + yy - zz, yz + zy, xz - zx],
        [xz + zx, yz + zy, 1 - xx - yy + zz, yx - xy],
        [zy - yz, xz - zx, yx - xy, 1 + xx + yy + zz],
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def rigid_pose(
    rotation: Float[Tensor, "*batch 3 3"], translation: Float[Tensor, "*batch 3"]
) -> Float[Tensor, "*batch 4 4"]:
    """The 4×4 matrix that rotates, then translates."""
    top = torch.cat([rotation, translation[..., None]], dim=-1)
    bottom = torch.zeros_like(top[..., :1, :])
    bottom[..., 3] = 1
    return torch.cat([top, bottom], dim=-2)


def invert_rigid(pose: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 4 4"]:
    """The inverse of a rotation and translation, without a matrix inversion."""
    transposed = pose[..., :3, :3].transpose(-1, -2)
    return rigid_pose(transposed, -(transposed @ pose[..., :3, 3:]).squeeze(-1))


def decode_pose(
    encoding: Float[Tensor, "*batch 9"], height: int, width: int
) -> tuple[Float[Tensor, "*batch 4 4"], Float[Tensor, "*batch 3 3"]]:
    """`world_from_camera` and intrinsics for an image of this size."""
    world_from_camera = rigid_pose(matrix_from_quaternion(encoding[..., 3:7]), encoding[..., :3])
    return world_from_camera, intrinsics_from_fov(encoding[..., 7:], height, width)


def encode_pose(
    world_from_camera: Float[Tensor, "*batch 4 4"], intrinsics: Float[Tensor, "*batch 3 3"], height: int, width: int
) -> Float[Tensor, "*batch 9"]:
    """The nine numbers of a camera, its quaternion of unit length with `w ≥ 0`."""
    quaternion = quaternion_from_matrix(world_from_camera[..., :3, :3])
    fov_rad = fov_from_intrinsics(intrinsics, height, width)
    return torch.cat([world_from_camera[..., :3, 3], quaternion, fov_rad], dim=-1)


def invert_encoding(encoding: Float[Tensor, "*batch 9"]) -> Float[Tensor, "*batch 9"]:
    """The inverse pose with the same field of view: `camera_from_world` as `world_from_camera`, or back."""
    translation, imaginary, rest = encoding[..., :3], encoding[..., 3:6], encoding[..., 6:]
    inverse = torch.cat([-imaginary, encoding[..., 6:7]], dim=-1)
    turned = matrix_from_quaternion(inverse) @ translation[..., None]
    return torch.cat([-turned.squeeze(-1), -imaginary, rest], dim=-1)
