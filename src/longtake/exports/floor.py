"""The floor of a mapped place: the lowest large level surface, seen from above by cameras held more or less upright.

Nothing is drawn at random: the same surfaces give the same floor.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from longtake.exports.cameras import KnownCamera
from longtake.exports.frame import MappedFrame
from longtake.exports.point_filter import PointFilter
from longtake.exports.saved import saved_frame
from longtake.spatial.normals import normals_from_depth
from longtake.spatial.pinhole import unproject
from longtake.spatial.similarity import Similarity
from longtake.takes.take import Take

LARGEST_LEAN_DEG = 45.0
"""How far the floor's normal may be from the cameras' mean upward direction."""

_LEAST_AGREEMENT = 0.5
"""Length of the mean of the cameras' upward directions; shorter, they were not held one way up."""
_LEVEL_DEG = 8.0
_NUM_DIRECTIONS, _NUM_VOTERS = 512, 8192
_STEP = 0.05
"""Thickness of a layer in which heights are counted, as a share of the median depth."""
_LEAST_OF_LARGEST = 0.3
"""A surface is large if it has this share of the largest level one."""
_THICKNESSES = (3.0, 2.0, 1.0, 0.5, 0.5)
"""In layers, how far points may be from the plane that is fitted to them, time after time."""
_LEAST_SHARE = 0.05
_LARGEST_SHARE_BELOW = 0.1
_LEAST_CAMERAS_ABOVE = 0.9
_THINNEST = 1e-3
"""Points whose second extent is this share of their first lie on a line, which has no normal."""

_MOST_FRAMES = 64
_MOST_POINTS_A_FRAME = 4096
_FARTHEST_IN_MEDIANS = 2.0
"""Points farther off count as much as those here, for their depth is the least certain."""
_FLATTEST = 0.1
"""Surfaces seen at a flatter angle, by its sine, count as seen at this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surfaces:
    """Places on the surfaces that the cameras saw, and the cameras."""

    points: Float[Tensor, "points 3"]
    normals: Float[Tensor, "points 3"]
    """Of length 1, facing the camera."""
    areas: Float[Tensor, " points"]
    """What each point stands for, in any unit."""
    depth: float
    """The median."""
    world_from_camera: Float[Tensor, "frames 4 4"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A plane: `normal · x = offset`."""

    normal: Float[Tensor, "3"]
    """Of length 1, upwards."""
    offset: float
    share: float
    """How much of all surfaces it is."""

    def heights(self, points: Float[Tensor, "points 3"]) -> Float[Tensor, " points"]:
        return points @ self.normal - self.offset

    def upright_from_world(self) -> Similarity:
        """The smallest turn that makes the floor level, then a move up or down that brings it to y = 0; y is down."""
        rotation = _smallest_turn(self.normal, torch.tensor([0.0, -1.0, 0.0], dtype=self.normal.dtype))
        translation = torch.tensor([0.0, self.offset, 0.0], dtype=self.normal.dtype)
        return Similarity(torch.ones((), dtype=self.normal.dtype), rotation, translation)


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


def find_floor(surfaces: Surfaces) -> Floor | None:
    """The floor among these surfaces, None where none is convincing."""
    ups = -surfaces.world_from_camera[:, :3, 1].mean(dim=0)
    if len(surfaces.points) == 0 or ups.norm() < _LEAST_AGREEMENT:
        return None
    normal = _dominant_normal(surfaces, ups / ups.norm())
    if normal is None:
        return None
    floor = _fitted(surfaces, normal, _lowest_large_level(surfaces, normal))
    return floor if floor is not None and _is_convincing(floor, surfaces, ups / ups.norm()) else None


def _dominant_normal(surfaces: Surfaces, up: Float[Tensor, "3"]) -> Float[Tensor, "3"] | None:
    """The direction near `up` around which most area faces."""
    leaning = surfaces.normals @ up > math.cos(math.radians(LARGEST_LEAN_DEG))
    normals, areas = surfaces.normals[leaning], surfaces.areas[leaning]
    if len(normals) == 0:
        return None
    directions, voters = _some(normals, _NUM_DIRECTIONS), _some(normals, _NUM_VOTERS)
    votes = (directions @ voters.T > math.cos(math.radians(_LEVEL_DEG))).to(areas) @ _some(areas, _NUM_VOTERS)
    best = directions[votes.argmax()]
    facing = normals @ best > math.cos(math.radians(_LEVEL_DEG))
    return torch.nn.functional.normalize(areas[facing] @ normals[facing], dim=0)


def _lowest_large_level(surfaces: Surfaces, normal: Float[Tensor, "3"]) -> float:
    """Height, along the normal, of the lowest layer that holds much of the area that faces up."""
    level = _is_level(surfaces, normal)
    heights, step = surfaces.points[level] @ normal, _STEP * surfaces.depth
    lowest = heights.min()
    layer = ((heights - lowest) / step).long()
    areas = torch.zeros(int(layer.max()) + 3, dtype=heights.dtype).scatter_add(0, layer + 1, surfaces.areas[level])
    thick = areas[:-2] + areas[1:-1] + areas[2:]
    place = int((thick >= _LEAST_OF_LARGEST * thick.max()).nonzero()[0])
    while place + 1 < len(thick) and thick[place + 1] > thick[place]:
        place += 1
    return float(lowest + (place + 0.5) * step)


def _fitted(surfaces: Surfaces, normal: Float[Tensor, "3"], offset: float) -> Floor | None:
    """The plane through the points near a first guess of it."""
    for thickness in _THICKNESSES:
        heights = surfaces.points @ normal - offset
        near = _is_level(surfaces, normal) & (heights.abs() < thickness * _STEP * surfaces.depth)
        points, areas = surfaces.points[near], surfaces.areas[near]
        if len(points) < 3:
            return None
        middle = areas @ points / areas.sum()
        spread, axes = torch.linalg.eigh((points - middle).T @ ((points - middle) * areas[:, None]))
        if spread[1] <= _THINNEST**2 * spread[2]:
            return None
        normal = axes[:, 0] * (axes[:, 0] @ normal).sign()
        offset = float(middle @ normal)
    return Floor(normal=normal, offset=offset, share=float(areas.sum() / surfaces.areas.sum()))


def _is_convincing(floor: Floor, surfaces: Surfaces, up: Float[Tensor, "3"]) -> bool:
    """Large enough, little lies below it, and the cameras are above."""
    layer = _STEP * surfaces.depth
    below = floor.heights(surfaces.points) < -2 * layer
    above = floor.heights(surfaces.world_from_camera[:, :3, 3]) > layer
    return (
        floor.share >= _LEAST_SHARE
        and float(surfaces.areas[below].sum() / surfaces.areas.sum()) <= _LARGEST_SHARE_BELOW
        and float(above.double().mean()) >= _LEAST_CAMERAS_ABOVE
        and float(floor.normal @ up) >= math.cos(math.radians(LARGEST_LEAN_DEG))
    )


def _is_level(surfaces: Surfaces, normal: Float[Tensor, "3"]) -> Bool[Tensor, " points"]:
    return surfaces.normals @ normal > math.cos(math.radians(_LEVEL_DEG))


def _some(values: Float[Tensor, "many *rest"], count: int) -> Float[Tensor, "few *rest"]:
    """About so many of the values, evenly spaced."""
    return values[:: max(1, math.ceil(len(values) / count))]


def _smallest_turn(source: Float[Tensor, "3"], target: Float[Tensor, "3"]) -> Float[Tensor, "3 3"]:
    """The rotation by the smallest angle that takes one unit vector to another."""
    identity = torch.eye(3, dtype=source.dtype)
    axis, cosine = torch.linalg.cross(source, target), float(source @ target)
    if cosine < -1 + 1e-9:
        aside = identity[int(source.abs().argmin())]
        axis = torch.nn.functional.normalize(torch.linalg.cross(source, aside), dim=0)
        return 2 * torch.outer(axis, axis) - identity
    x, y, z = axis.tolist()
    cross = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=source.dtype)
    return identity + cross + cross @ cross / (1 + cosine)
