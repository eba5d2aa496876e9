"""Normals of surfaces from a depth map, where the surface is whole around a pixel."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from longtake.errors import SettingError
from longtake.spatial.pinhole import unproject


def normals_from_depth(
    depth: Float[Tensor, "height width"],
    intrinsics: Float[Tensor, "3 3"],
    world_from_camera: Float[Tensor, "4 4"],
    *,
    largest_kink: float = 0.05,
) -> Float[Tensor, "height width 3"]:
    """Unit normals in the world, facing the camera; zero where unknown.

    The cross product of the central differences of neighbouring points. A pixel has no normal at the border, beside a
    pixel without depth, and where the surface breaks: where inverse depth bends by more than `largest_kink` of itself.
    Along a plane, however oblique, inverse depth does not bend at all; at a jump from depth a to b it bends by
    |a / b - 1|.
    """
    if not largest_kink > 0:
        raise SettingError(f"The largest kink of a surface must be positive, but is {largest_kink}.")
    usable = depth.isfinite() & (depth > 0)
    filled = torch.where(usable, depth, 1)
    points = unproject(filled, intrinsics, torch.eye(4, dtype=depth.dtype, device=depth.device))
    across = points[1:-1, 2:] - points[1:-1, :-2]
    down = points[2:, 1:-1] - points[:-2, 1:-1]
    normal = torch.linalg.cross(across, down)
    towards = -(normal * points[1:-1, 1:-1]).sum(dim=-1, keepdim=True).sign()
    whole = _is_whole(usable, 1 / filled, largest_kink)
    unit = towards * torch.nn.functional.normalize(normal, dim=-1) * whole[..., None]
    normals = torch.zeros_like(points)
    normals[1:-1, 1:-1] = unit @ world_from_camera[:3, :3].T
    return normals


def _is_whole(
    usable: Bool[Tensor, "height width"], inverse: Float[Tensor, "height width"], largest_kink: float
) -> Bool[Tensor, "inner_height inner_width"]:
    """Where a pixel and its four neighbours have depth on one surface."""
    centre = inverse[1:-1, 1:-1]
    bend_across = (inverse[1:-1, 2:] + inverse[1:-1, :-2] - 2 * centre).abs()
    bend_down = (inverse[2:, 1:-1] + inverse[:-2, 1:-1] - 2 * centre).abs()
    have_depth = usable[1:-1, 1:-1] & usable[1:-1, 2:] & usable[1:-1, :-2] & usable[2:, 1:-1] & usable[:-2, 1:-1]
    return have_depth & (torch.maximum(bend_across, bend_down) <= largest_kink * centre)
