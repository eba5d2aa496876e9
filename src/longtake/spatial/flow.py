"""How far pixels move between two cameras, from depth and poses alone."""

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.spatial.pinhole import unproject
from longtake.spatial.pose import invert_rigid

_NEAREST = 1e-6


def mean_flow_px(
    depth: Float[Tensor, "height width"],
    pose: tuple[Float[Tensor, "4 4"], Float[Tensor, "3 3"]],
    other: tuple[Float[Tensor, "4 4"], Float[Tensor, "3 3"]],
    *,
    stride: int = 8,
) -> Float[Tensor, ""]:
    """Mean distance in pixels from where a point is seen to where the other camera would see it.

    A camera is `world_from_camera` and intrinsics. Every `stride`-th row and column counts, where depth is positive and
    the point lies before both cameras; the other image's border does not matter. Zero where nothing counts.
    """
    world_from_camera, intrinsics = pose
    other_from_world, other_intrinsics = invert_rigid(other[0]), other[1]
    height, width = depth.shape
    points = unproject(depth, intrinsics, world_from_camera)[::stride, ::stride]
    seen = points @ other_from_world[:3, :3].T + other_from_world[:3, 3]
    far = seen[..., 2].clamp_min(_NEAREST)
    focal = torch.stack([other_intrinsics[0, 0], other_intrinsics[1, 1]])
    center = torch.stack([other_intrinsics[0, 2], other_intrinsics[1, 2]])
    there = seen[..., :2] / far[..., None] * focal + center
    rows = torch.arange(0, height, stride, device=depth.device, dtype=depth.dtype)
    columns = torch.arange(0, width, stride, device=depth.device, dtype=depth.dtype)
    here = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=-1)
    counts = (depth[::stride, ::stride] > _NEAREST) & (seen[..., 2] > _NEAREST)
    moved = torch.where(counts, (there - here).norm(dim=-1), 0)
    return moved.sum() / counts.sum().clamp_min(1)
