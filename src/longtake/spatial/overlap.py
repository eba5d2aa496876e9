"""How much of what one frame sees another sees too, by their poses and depths."""

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.spatial.pose import invert_rigid

_SPACING = 14
"""Pixels between the points that stand for a frame."""
_TOLERANCE = 0.1
"""By which a point's depth may differ from what is seen there; more, and something stands before it."""


def overlaps(
    depth: Float[Tensor, "frames height width"],
    world_from_camera: Float[Tensor, "frames 4 4"],
    intrinsics: Float[Tensor, "frames 3 3"],
) -> Float[Tensor, "frames frames"]:
    """Of the points that each frame (row) sees, the share that each frame (column) sees too; sky counts as unseen."""
    height, width = depth.shape[1:]
    rows = torch.arange(_SPACING // 2, height, _SPACING, device=depth.device)
    columns = torch.arange(_SPACING // 2, width, _SPACING, device=depth.device)
    v, u = (axis.flatten() for axis in torch.meshgrid(rows, columns, indexing="ij"))
    pixels = torch.stack([u, v, torch.ones_like(u)]).to(intrinsics)
    own = depth[:, v, u]
    is_there = own.isfinite()
    rays = torch.linalg.solve_triangular(intrinsics, pixels, upper=True)
    seen = rays * torch.where(is_there, own, 1)[:, None]
    points = world_from_camera[:, :3, :3] @ seen + world_from_camera[:, :3, 3:]
    camera_from_world = invert_rigid(world_from_camera)
    in_camera = camera_from_world[:, None, :3, :3] @ points + camera_from_world[:, None, :3, 3:]
    away = in_camera[:, :, 2]
    at = (intrinsics[:, None] @ in_camera)[:, :, :2] / away.clamp_min(1e-3)[:, :, None]
    column, row = at.round().long().unbind(dim=2)
    inside = (away > 0) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
    camera = torch.arange(len(depth), device=depth.device)[:, None, None]
    met = depth[camera, row.clamp(0, height - 1), column.clamp(0, width - 1)]
    same = inside & ((met - away).abs() < _TOLERANCE * away) & is_there
    shares: Tensor = same.float().mean(dim=2).T
    return shares
