"""Normals of surfaces from a depth map, where the surface is whole around a pixel."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from longtake.errors import SettingError

_SMALLEST_LENGTH = 1e-12


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
    points = _camera_points(filled, intrinsics)
    across = [axis[1:-1, 2:] - axis[1:-1, :-2] for axis in points]
    down = [axis[2:, 1:-1] - axis[:-2, 1:-1] for axis in points]
    normal = _cross(across, down)
    towards = -_dot(normal, [axis[1:-1, 1:-1] for axis in points]).sign()
    length = _dot(normal, normal).sqrt().clamp_min(_SMALLEST_LENGTH)
    factor = towards * _is_whole(usable, 1 / filled, largest_kink) / length
    normals = depth.new_zeros(3, *depth.shape)
    for place, (x, y, z) in enumerate(world_from_camera[:3, :3].tolist()):
        normals[place, 1:-1, 1:-1] = (x * normal[0] + y * normal[1] + z * normal[2]) * factor
    return normals.movedim(0, -1)


def _camera_points(depth: Float[Tensor, "height width"], intrinsics: Float[Tensor, "3 3"]) -> list[Tensor]:
    """x, y and z of every pixel in the camera's frame, a picture each."""
    height, width = depth.shape
    (focal_x, _, center_x), (_, focal_y, center_y), _ = intrinsics.tolist()
    column = torch.arange(width, device=depth.device, dtype=depth.dtype)
    row = torch.arange(height, device=depth.device, dtype=depth.dtype)[:, None]
    return [(column - center_x) / focal_x * depth, (row - center_y) / focal_y * depth, depth]


def _dot(one: list[Tensor], other: list[Tensor]) -> Tensor:
    return one[0] * other[0] + one[1] * other[1] + one[2] * other[2]


def _cross(one: list[Tensor], other: list[Tensor]) -> list[Tensor]:
    """The cross product of vectors whose coordinates lie apart."""
    return [one[i] * other[j] - one[j] * other[i] for i, j in ((1, 2), (2, 0), (0, 1))]


def _is_whole(
    usable: Bool[Tensor, "height width"], inverse: Float[Tensor, "height width"], largest_kink: float
) -> Bool[Tensor, "inner_height inner_width"]:
    """Where a pixel and its four neighbours have depth on one surface."""
    centre = inverse[1:-1, 1:-1]
    bend_across = (inverse[1:-1, 2:] + inverse[1:-1, :-2] - 2 * centre).abs()
    bend_down = (inverse[2:, 1:-1] + inverse[:-2, 1:-1] - 2 * centre).abs()
    have_depth = usable[1:-1, 1:-1] & usable[1:-1, 2:] & usable[1:-1, :-2] & usable[2:, 1:-1] & usable[:-2, 1:-1]
    return have_depth & (torch.maximum(bend_across, bend_down) <= largest_kink * centre)
