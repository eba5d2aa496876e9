"""Rotations as quaternions `x y z w` and as 3×3 matrices, and the one nearest any matrix."""

import torch
from jaxtyping import Float
from torch import Tensor


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
    """The rotation closest to a matrix, never a reflection."""
    left, _, right = torch.linalg.svd(matrix)
    last = torch.linalg.det(left @ right).sign()
    flip = torch.stack([torch.ones_like(last), torch.ones_like(last), last], dim=-1)
    rotation: Tensor = (left * flip[..., None, :]) @ right
    return rotation


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
