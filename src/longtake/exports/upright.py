"""The floor of a saved result, from some of its frames."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from longtake.exports.cameras import KnownCamera
from longtake.exports.floor import Floor, Surfaces, find_floor
from longtake.exports.frame import MappedFrame
from longtake.exports.point_filter import PointFilter
from longtake.exports.saved import saved_frame
from longtake.spatial.normals import normals_from_depth
from longtake.spatial.pinhole import unproject
from longtake.takes.take import Take

_MOST_FRAMES = 64
_MOST_POINTS_A_FRAME = 4096
_FARTHEST_IN_MEDIANS = 2.0
"""Points farther off count as much as those here, for their depth is the least certain."""
_FLATTEST = 0.1
"""Surfaces seen at a flatter angle, by its sine, count as seen at this."""


def floor_of(take: Take, camera: KnownCamera | None = None) -> Floor | None:
    """The floor in the take's world, frames seen by their own cameras or by one that is known."""
    if take.header.depth is None:
        return None
    surfaces = _surfaces(take, camera)
    return None if surfaces is None else find_floor(surfaces)


def _surfaces(take: Take, camera: KnownCamera | None) -> Surfaces | None:
    positions = np.unique(np.linspace(0, len(take) - 1, _MOST_FRAMES).round().astype(int)).tolist()
    frames = (saved_frame(take, position) for position in positions)
    points = PointFilter(largest_jump=None)  # a floor is seen at so flat an angle that its depth jumps
    seen = [_seen_in(frame if camera is None else camera.of(frame), points) for frame in frames if points.takes(frame)]
    if not seen or not sum(len(part) for part in seen):
        return None
    every = torch.cat(seen)
    depth = every[:, 6].median()
    return Surfaces(
        points=every[:, :3],
        normals=every[:, 3:6],
        areas=(every[:, 6] / depth).clamp(max=_FARTHEST_IN_MEDIANS).square() / every[:, 7].clamp(min=_FLATTEST),
        depth=float(depth),
        world_from_camera=take.trajectory.world_from_camera,
    )


def _seen_in(frame: MappedFrame, points: PointFilter) -> Float[Tensor, "points 8"]:
    """Point, normal, depth and sine of the angle of view for some pixels, evenly spaced."""
    stride = max(1, math.isqrt(frame.depth.size // _MOST_POINTS_A_FRAME))
    depth = torch.from_numpy(frame.depth).double()
    normals = normals_from_depth(depth, frame.intrinsics, frame.world_from_camera)
    kept = torch.from_numpy(points.kept(frame)) & (normals.norm(dim=-1) > 0)
    places = unproject(depth, frame.intrinsics, frame.world_from_camera)
    rays = torch.nn.functional.normalize(places - frame.world_from_camera[:3, 3], dim=-1)
    sine = (rays * normals).sum(dim=-1).abs()
    every = torch.cat([places, normals, depth[..., None], sine[..., None]], dim=-1)
    return every[::stride, ::stride][kept[::stride, ::stride]]
