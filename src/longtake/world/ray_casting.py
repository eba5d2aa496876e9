"""Ray casting against the solids of a world: the distance of the first hit, and what was hit.

A ray's direction has length 1 along the camera's own z, so the distance found is depth. All distances of a view's rays
to all its solids are computed at once, one shape after the other; solids out of sight are left out first.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longtake.world.scene import Scene, Solids

NEAREST = 0.02
"""What is nearer than this, in depth, is not seen."""
PARALLEL = 1e-9
"""A direction less than this along an axis has no part in it."""
_Vector = tuple[Tensor, Tensor, Tensor]
"""Along x, y and z."""


@dataclass(frozen=True, slots=True)
class Rays:
    """Rays of some views; those of one view start at one point."""

    origin: Float[Tensor, "views 3"]
    direction: Float[Tensor, "views rays 3"]
    forward: Float[Tensor, "views 3"]
    """The camera's z axis."""
    pixel: Float[Tensor, "views"]
    """Width of a pixel at depth 1."""


@dataclass(frozen=True, slots=True)
class Hits:
    """What each ray meets first."""

    depth: Float[Tensor, "views rays"]
    """Infinite where a ray meets nothing."""
    solid: Int[Tensor, "views rays"]
    """Which solid of its view; `FLOOR`, `CEILING` or `SKY` for those."""


FLOOR = -1
CEILING = -2
SKY = -3


def first_hits(rays: Rays, scene: Scene) -> Hits:
    """The nearest surface on each ray; the scene is given view by view."""
    solids, ceiling = scene.solids, scene.ceiling
    ground, reach = scene.surroundings[:, :2, None].unbind(dim=1)
    down = _never_zero(rays.direction[..., 1])
    to_floor, to_ceiling = ground - rays.origin[:, None, 1], -ceiling[:, None] - rays.origin[:, None, 1]
    depth = torch.where(down > 0, to_floor, to_ceiling) / down
    solid = torch.where(down > 0, FLOOR, CEILING)
    start = 0
    for distances, stop in (
        (_to_boxes, solids.num_boxes),
        (_to_balls, solids.num_boxes + solids.num_balls),
        (_to_tapers, solids.center.shape[1]),
    ):
        if stop > start:
            nearest, index = distances(rays, solids, slice(start, stop)).min(dim=1)
            nearer = nearest < depth
            depth, solid = torch.where(nearer, nearest, depth), torch.where(nearer, index + start, solid)
        start = stop
    if scene.varied:
        is_sky = (depth > reach) | depth.isinf()
        depth, solid = torch.where(is_sky, torch.inf, depth), torch.where(is_sky, SKY, solid)
    return Hits(depth, solid)


def in_sight(solids: Solids, rays: Rays, half_angle_rad: float) -> Bool[Tensor, "views solids"]:
    """Whether a solid's bounding sphere reaches into the cone around a view; solids are given view by view."""
    away = solids.center - rays.origin[:, None]
    distance, radius = away.square().sum(dim=-1).sqrt(), solids.half.square().sum(dim=-1).sqrt()
    along = torch.einsum("vsi,vi->vs", away, rays.forward) / distance.clamp_min(1e-6)
    angle = along.clamp(-1, 1).acos()
    reach = (radius / distance.clamp_min(1e-6)).clamp_max(1).asin()
    return (distance <= radius) | (angle <= half_angle_rad + reach)


def _local(rays: Rays, solids: Solids, part: slice) -> tuple[_Vector, _Vector]:
    """Origins (one a view and solid) and directions (one a ray and solid) along each solid's own axes."""
    away_x, away_y, away_z = (rays.origin[:, None] - solids.center[:, part])[..., None].unbind(dim=2)
    x, y, z = _components(rays)
    turn = solids.rotation[:, part, ..., None]
    if solids.varied:
        axes = [(turn[:, :, 0, axis], turn[:, :, 1, axis], turn[:, :, 2, axis]) for axis in range(3)]
        from_x, from_y, from_z = (_dot(axis, away_x, away_y, away_z) for axis in axes)
        to_x, to_y, to_z = (_dot(axis, x, y, z) for axis in axes)
        return (from_x, from_y, from_z), (to_x, to_y, to_z)
    cos, sin = turn[:, :, 0, 0], turn[:, :, 0, 2]
    origin = (cos * away_x - sin * away_z, away_y, sin * away_x + cos * away_z)
    return origin, (cos * x - sin * z, y, sin * x + cos * z)


def _dot(axis: _Vector, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return axis[0] * x + axis[1] * y + axis[2] * z


def _components(rays: Rays) -> Float[Tensor, "3 views 1 rays"]:
    """Directions with the axis of rays last, contiguous in memory."""
    return rays.direction.movedim(-1, 0).contiguous()[:, :, None]


def _never_zero(direction: Float[Tensor, "*rays"]) -> Float[Tensor, "*rays"]:
    """Directions without exact zeros: a ray along a face meets its plane far away, where dividing by 0 gave NaN."""
    return torch.where(direction.abs() < PARALLEL, PARALLEL, direction)


def _to_boxes(rays: Rays, solids: Solids, part: slice) -> Float[Tensor, "views solids rays"]:
    """Slabs: a ray is inside the box while it is between all three pairs of faces."""
    origin, direction = _local(rays, solids, part)
    near, far = None, None
    for axis in range(3):
        inverse = _never_zero(direction[axis]).reciprocal()
        middle, width = -origin[axis] * inverse, solids.half[:, part, axis, None] * inverse.abs()
        enter, leave = middle - width, middle + width
        near = enter if near is None else torch.maximum(near, enter)
        far = leave if far is None else torch.minimum(far, leave)
    assert near is not None
    assert far is not None
    return torch.where((near <= far) & (near > NEAREST), near, torch.inf)


def _to_balls(rays: Rays, solids: Solids, part: slice) -> Float[Tensor, "views solids rays"]:
    if solids.varied:
        return _to_ellipsoids(rays, solids, part)
    away = (rays.origin[:, None] - solids.center[:, part])[..., None].unbind(dim=2)
    direction = _components(rays)
    a = direction.square().sum(dim=0)
    middle = sum(-from_center * along for from_center, along in zip(away, direction, strict=True)) / a
    # the way across from the ball's centre to the ray, squared: steadier than b² - ac for small balls far away
    across = sum((from_center + middle * along).square() for from_center, along in zip(away, direction, strict=True))
    inside = solids.half[:, part, 0, None].square() - across
    near = middle - (inside.clamp_min(0) / a).sqrt()
    return torch.where((inside > 0) & (near > NEAREST), near, torch.inf)


def _to_ellipsoids(rays: Rays, solids: Solids, part: slice) -> Float[Tensor, "views solids rays"]:
    """Balls of radius 1, in lengths of the half axes."""
    half = solids.half[:, part, :, None].clamp_min(1e-6).unbind(dim=2)
    own_origin, own_direction = _local(rays, solids, part)
    away_x, away_y, away_z = (from_center / axis for from_center, axis in zip(own_origin, half, strict=True))
    x, y, z = (along / axis for along, axis in zip(own_direction, half, strict=True))
    a = x * x + y * y + z * z
    middle = -(x * away_x + y * away_y + z * away_z) / a
    across = (away_x + middle * x).square() + (away_y + middle * y).square() + (away_z + middle * z).square()
    inside = 1 - across
    near = middle - (inside.clamp_min(0) / a).sqrt()
    return torch.where((inside > 0) & (near > NEAREST), near, torch.inf)


def _to_tapers(rays: Rays, solids: Solids, part: slice) -> Float[Tensor, "views solids rays"]:
    origin, direction = _local(rays, solids, part)
    if not solids.varied:
        return _to_tapers_from(origin, direction, solids.half[:, part], NEAREST)
    # begun where the ray passes the middle: steadier than b² - ac for thin poles far away
    start = -_dot(direction, *origin) / _dot(direction, *direction)
    x, y, z = (from_center + start * along for from_center, along in zip(origin, direction, strict=True))
    return start + _to_tapers_from((x, y, z), direction, solids.half[:, part], NEAREST - start)


def _to_tapers_from(
    origin: _Vector, direction: _Vector, halves: Float[Tensor, "views solids 3"], begin: Tensor | float
) -> Float[Tensor, "views solids rays"]:
    """The nearest of four that lies beyond `begin`: in and out through the side, foot and top."""
    (o_x, o_y, o_z), (d_x, d_y, d_z) = origin, direction
    foot, half, top = halves[..., None].unbind(dim=2)
    slope = (foot - top) / (2 * half).clamp_min(1e-9)
    radius, widening = (foot + top) / 2 + slope * o_y, slope * d_y  # of the side at the ray's height
    a = d_x * d_x + d_z * d_z - widening * widening
    a = torch.where(a.abs() < 1e-9, 1e-9, a)
    b = o_x * d_x + o_z * d_z - radius * widening
    c = o_x * o_x + o_z * o_z - radius * radius
    square = b * b - a * c
    root = square.clamp_min(0).sqrt()
    nearest = torch.full_like(square, torch.inf)
    for depth in ((-b - root) / a, (-b + root) / a):
        good = (square > 0) & ((o_y + depth * d_y).abs() <= half) & (radius + depth * widening >= 0) & (depth > begin)
        nearest = torch.where(good & (depth < nearest), depth, nearest)
    for height, limit in ((half, foot), (-half, top)):
        depth = (height - o_y) / d_y
        x, z = o_x + depth * d_x, o_z + depth * d_z
        good = (x * x + z * z <= limit * limit) & (depth > begin) & (depth < nearest)
        nearest = torch.where(good, depth, nearest)
    return nearest
