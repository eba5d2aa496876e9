"""Pinhole cameras: fields of view, intrinsics, and pixels with depth as points.

Pixel `(0, 0)` names the centre of the first pixel while the principal point sits at `(width / 2, height / 2)`: the
convention of the published networks, kept as it is.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

SMALLEST_FOV_RAD = 1e-4
LARGEST_FOV_RAD = math.pi - 1e-4


def intrinsics_from_fov(fov_rad: Float[Tensor, "*batch 2"], height: int, width: int) -> Float[Tensor, "*batch 3 3"]:
    """Intrinsics from the (vertical, horizontal) field of view, clamped to keep focal lengths finite and positive."""
    half = fov_rad.clamp(SMALLEST_FOV_RAD, LARGEST_FOV_RAD) / 2
    focal_y, focal_x = (height / 2 / half[..., 0].tan(), width / 2 / half[..., 1].tan())
    zero, one = torch.zeros_like(focal_x), torch.ones_like(focal_x)
    rows = [
        [focal_x, zero, one * (width / 2)],
        [zero, focal_y, one * (height / 2)],
        [zero, zero, one],
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def fov_from_intrinsics(intrinsics: Float[Tensor, "*batch 3 3"], height: int, width: int) -> Float[Tensor, "*batch 2"]:
    """The (vertical, horizontal) field of view in radians."""
    vertical = 2 * torch.atan(height / 2 / intrinsics[..., 1, 1])
    horizontal = 2 * torch.atan(width / 2 / intrinsics[..., 0, 0])
    return torch.stack([vertical, horizontal], dim=-1)


def unproject(
    depth: Float[Tensor, "*batch height width"],
    intrinsics: Float[Tensor, "*batch 3 3"],
    world_from_camera: Float[Tensor, "*batch 4 4"],
) -> Float[Tensor, "*batch height width 3"]:
    """World points of every pixel; depth runs along the camera's z axis."""
    height, width = depth.shape[-2:]
    v = torch.arange(height, device=depth.device, dtype=depth.dtype)[:, None]
    u = torch.arange(width, device=depth.device, dtype=depth.dtype)
    focal_x, focal_y = intrinsics[..., 0, 0, None, None], intrinsics[..., 1, 1, None, None]
    center_x, center_y = intrinsics[..., 0, 2, None, None], intrinsics[..., 1, 2, None, None]
    camera_points = torch.stack([(u - center_x) / focal_x * depth, (v - center_y) / focal_y * depth, depth], dim=-1)
    rotation, translation = world_from_camera[..., :3, :3], world_from_camera[..., :3, 3]
    return torch.einsum("...ij,...hwj->...hwi", rotation, camera_points) + translation[..., None, None, :]
