"""What a hit looks like: where it is, which way it faces, which material, how bright.

A surface's colour depends on its place alone, but for grain and joints finer than a pixel, which fade with distance as
they would in a camera.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longtake.world.daylight import Daylight
from longtake.world.materials import NUM_PLAIN
from longtake.world.patterns import Tables, brightness, cells_at, decorate
from longtake.world.ray_casting import CEILING, SKY, Hits, Rays
from longtake.world.scene import NOWHERE, Scene


@dataclass(frozen=True, slots=True)
class Surfaces:
    """The surface under each ray, in the world."""

    position: Float[Tensor, "views rays 3"]
    normal: Float[Tensor, "views rays 3"]
    """Of length 1, towards the ray."""
    chart: Float[Tensor, "views rays 2"]
    """Coordinates along the surface, in metres."""
    material: Int[Tensor, "views rays"]
    thing: Int[Tensor, "views rays"]
    """-1 where there is none."""
    room: Int[Tensor, "views rays"]
    """Which room the surface faces."""


def surfaces_at(rays: Rays, hits: Hits, scene: Scene) -> Surfaces:
    """Where and what was hit; the scene is given view by view."""
    solids = scene.solids
    # sky has a place too, so that all numbers stay finite
    position = rays.origin[:, None] + rays.direction * hits.depth.clamp_max(NOWHERE)[..., None]
    is_solid = hits.solid >= 0
    index = hits.solid.clamp_min(0)
    center, half = (_of_hit(values, index) for values in (solids.center, solids.half))
    turn = _turns(scene, index)
    own = _turned(position - center, turn, back=True)
    is_box, is_ball = (
        index < solids.num_boxes,
        (index >= solids.num_boxes) & (index < solids.num_boxes + solids.num_balls),
    )
    round_normal, is_cap = _taper_normal(own, half)
    ball_normal = own / half.square().clamp_min(1e-12) if scene.varied else own
    own_normal = torch.where(
        is_box[..., None], _box_normal(own, half), torch.where(is_ball[..., None], ball_normal, round_normal)
    )
    own_normal = own_normal / own_normal.square().sum(dim=-1, keepdim=True).sqrt().clamp_min(1e-9)
    flat = torch.zeros_like(position)
    flat[..., 1] = torch.where(hits.solid == CEILING, 1.0, -1.0)
    normal = torch.where(is_solid[..., None], _turned(own_normal, turn, back=False), flat)
    thing = torch.where(is_solid, solids.thing.gather(1, index), -1)
    # things carry their pattern along, walls share one that runs through
    is_own = thing >= 0
    if scene.varied:
        normal = torch.where((hits.solid == SKY)[..., None], -_unit(rays.direction), normal)
        is_own = is_own | (is_solid & solids.own_pattern.gather(1, index))
    charted = torch.where(is_own[..., None], own, position)
    chart_normal = torch.where(is_own[..., None], own_normal, normal)
    is_wrapped = is_solid & ~is_box & ~(is_cap & ~is_ball)
    room = _room_at(position + 0.03 * normal, scene)
    material = torch.where(is_solid, solids.material.gather(1, index), -1)
    facing = torch.where(normal[..., 1].abs() < 0.5, 0, torch.where(normal[..., 1] < 0, 1, 2))
    return Surfaces(
        position=position,
        normal=normal,
        chart=_chart(charted, chart_normal, is_wrapped),
        material=torch.where(material >= 0, material, 3 * room + facing),
        thing=thing,
        room=room,
    )


def _of_hit(values: Float[Tensor, "views solids columns"], index: Int[Tensor, "views rays"]) -> Tensor:
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))


def _unit(vector: Float[Tensor, "views rays 3"]) -> Float[Tensor, "views rays 3"]:
    return vector / vector.square().sum(dim=-1, keepdim=True).sqrt()


def _turns(scene: Scene, index: Int[Tensor, "views rays"]) -> Float[Tensor, "views rays numbers"]:
    """The rotation of each hit's solid, or cosine and sine alone where all stand upright."""
    rotation = scene.solids.rotation
    return _of_hit(rotation.flatten(-2) if scene.varied else rotation[..., 0, ::2], index)


def _turned(vector: Float[Tensor, "views rays 3"], turn: Float[Tensor, "views rays numbers"], *, back: bool) -> Tensor:
    """From a solid's own axes to the world's, or back."""
    x, y, z = vector.unbind(dim=-1)
    if turn.shape[-1] > 2:
        rotation = turn.view(*vector.shape, 3)
        to_x, to_y, to_z = rotation.unbind(dim=-2 if back else -1)
        return to_x * x[..., None] + to_y * y[..., None] + to_z * z[..., None]
    cos, sin = turn[..., 0], -turn[..., 1] if back else turn[..., 1]
    return torch.stack([cos * x + sin * z, y, cos * z - sin * x], dim=-1)


def _box_normal(own: Float[Tensor, "views rays 3"], half: Float[Tensor, "views rays 3"]) -> Tensor:
    """The face is the one nearest to the point."""
    gap = (own.abs() - half).abs()
    axis = gap.argmin(dim=-1, keepdim=True)
    return torch.zeros_like(own).scatter(-1, axis, own.gather(-1, axis).sign())


def _taper_normal(
    own: Float[Tensor, "views rays 3"], half: Float[Tensor, "views rays 3"]
) -> tuple[Float[Tensor, "views rays 3"], Bool[Tensor, "views rays"]]:
    """And whether the point lies on the foot or the top."""
    foot, height, top = half.unbind(dim=-1)
    x, y, z = own.unbind(dim=-1)
    slope = (foot - top) / (2 * height).clamp_min(1e-9)
    radius = (foot + top) / 2 + slope * y
    is_cap = (height - y.abs()).abs() < (torch.hypot(x, z) - radius).abs()
    side = torch.stack([x, -slope * radius, z], dim=-1)
    cap = torch.stack([torch.zeros_like(y), y.sign(), torch.zeros_like(y)], dim=-1)
    return torch.where(is_cap[..., None], cap, side), is_cap


def _chart(
    position: Float[Tensor, "views rays 3"],
    normal: Float[Tensor, "views rays 3"],
    is_wrapped: Bool[Tensor, "views rays"],
) -> Float[Tensor, "views rays 2"]:
    """Flat faces by their two other axes, round ones by the way around and the height."""
    x, y, z = position.unbind(dim=-1)
    axis = normal.abs().argmax(dim=-1)
    u = torch.where(axis == 0, z, x)
    v = torch.where(axis == 1, z, y)
    around = torch.atan2(x, z) * torch.hypot(x, z)
    return torch.stack([torch.where(is_wrapped, around, u), torch.where(is_wrapped, y, v)], dim=-1)


def _room_at(position: Float[Tensor, "views rays 3"], scene: Scene) -> Int[Tensor, "views rays"]:
    x, z = position[..., 0, None], position[..., 2, None]
    (low_x, low_z), (high_x, high_z) = (bound[:, None].unbind(dim=-1) for bound in (scene.room_low, scene.room_high))
    inside = (x >= low_x) & (x < high_x) & (z >= low_z) & (z < high_z)
    return inside.to(torch.uint8).argmax(dim=-1)


def colours(rays: Rays, hits: Hits, surfaces: Surfaces, scene: Scene) -> Float[Tensor, "views rays 3"]:
    """The colour of each surface, 0 to 1."""
    if scene.varied:
        return _varied_colours(rays, hits, surfaces, scene).clamp(0, 1)
    footprint, tables = _footprint(rays, hits, surfaces.normal), Tables(scene.noise, scene.shades)
    rows = _of_hit(scene.materials[..., :NUM_PLAIN], surfaces.material)
    pattern = brightness(cells_at(surfaces.chart, rows), surfaces.chart, rows, footprint, tables)
    light = (_lamps(surfaces, scene) * _shadow(surfaces, scene))[..., None] * _of_hit(scene.light, surfaces.room)
    return _shining(rows[..., :3], pattern, light, rows).clamp(0, 1)


def _varied_colours(rays: Rays, hits: Hits, surfaces: Surfaces, scene: Scene) -> Float[Tensor, "views rays 3"]:
    """With second colours, under lamps and the sky, through the air."""
    footprint, tables = _footprint(rays, hits, surfaces.normal), Tables(scene.noise, scene.shades)
    rows = _of_hit(scene.materials, surfaces.material)
    decoration = decorate(surfaces.chart, rows, footprint, tables)
    colour = torch.lerp(rows[..., :3], rows[..., 16:19], decoration.second[..., None])
    pattern = brightness(decoration.cells, surfaces.chart, rows, footprint, tables)
    daylight = Daylight.of(scene.surroundings)
    lamps = _lamps(surfaces, scene)[..., None] * _of_hit(scene.light, surfaces.room)
    light = (lamps + daylight.on(surfaces.normal)) * _shadow_at_any_height(surfaces, scene)[..., None]
    return daylight.seen(_shining(colour, pattern, light, rows), rays, hits.depth, scene.noise)


def _shining(colour: Tensor, pattern: Tensor, light: Tensor, rows: Tensor) -> Float[Tensor, "views rays 3"]:
    """What is lit, and what shines by itself."""
    glow = rows[..., 15, None]
    return glow * colour + (1 - glow) * (colour * pattern[..., None] * light)


def _footprint(rays: Rays, hits: Hits, normal: Float[Tensor, "views rays 3"]) -> Float[Tensor, "views rays"]:
    """Metres of surface under a pixel, longer where it is seen aslant."""
    slant = (rays.direction * normal).sum(dim=-1).abs() / rays.direction.square().sum(dim=-1).sqrt()
    return hits.depth.clamp_max(NOWHERE) * rays.pixel[:, None] / slant.clamp_min(0.15)


def _lamps(surfaces: Surfaces, scene: Scene) -> Float[Tensor, "views rays"]:
    """A lamp under each ceiling, light from everywhere, and dimmer edges where surfaces meet."""
    low, high = (_of_hit(bound, surfaces.room) for bound in (scene.room_low, scene.room_high))
    middle = (low + high) / 2
    ceiling = scene.ceiling.clamp_max(NOWHERE)[:, None].expand_as(surfaces.room)
    lamp = torch.stack([middle[..., 0], 0.35 - ceiling, middle[..., 1]], dim=-1)
    away = lamp - surfaces.position
    distance = away.square().sum(dim=-1).sqrt()
    facing = (away * surfaces.normal).sum(dim=-1) / distance.clamp_min(1e-3)
    direct = 0.9 * (0.25 + 0.75 * facing).clamp_min(0) / (1 + (distance / 3.2).square())
    around = 0.5 + 0.08 * surfaces.normal[..., 0] - 0.04 * surfaces.normal[..., 1] + 0.05 * surfaces.normal[..., 2]
    x, y, z = surfaces.position.unbind(dim=-1)
    to_wall = torch.minimum(
        torch.minimum(x - low[..., 0], high[..., 0] - x), torch.minimum(z - low[..., 1], high[..., 1] - z)
    )
    to_flat = torch.minimum(-y, y + ceiling)
    corner = (1 - 0.22 * (-to_flat.clamp_min(0) / 0.18).exp()) * (1 - 0.22 * (-to_wall.clamp_min(0) / 0.25).exp())
    return (direct + around) * corner


def _shadow(surfaces: Surfaces, scene: Scene) -> Float[Tensor, "views rays"]:
    """Soft darkness under things, on what faces up below knee height."""
    x, y, z = surfaces.position[..., None, :].unbind(dim=-1)
    at_x, at_z, reach = scene.standing[:, None, :, :3].unbind(dim=-1)
    square = ((x - at_x).square() + (z - at_z).square()) / reach.square()
    under = (-square).exp().sum(dim=-1).clamp_max(1) * (1 + y[..., 0] / 0.3).clamp(0, 1)
    return 1 - 0.45 * under * (surfaces.normal[..., 1] < -0.5)


def _shadow_at_any_height(surfaces: Surfaces, scene: Scene) -> Float[Tensor, "views rays"]:
    """Soft darkness around what stands about, on what faces up at its foot."""
    x, y, z = surfaces.position[..., None, :].unbind(dim=-1)
    at_x, at_z, reach, foot = scene.standing[:, None].unbind(dim=-1)
    square = ((x - at_x).square() + (z - at_z).square()) / reach.square()
    near_foot = (1 - (foot - y).abs() / (0.3 * reach.clamp(0.1, 1))).clamp(0, 1)
    under = ((-square).exp() * near_foot).sum(dim=-1).clamp_max(1)
    return 1 - 0.45 * under * (surfaces.normal[..., 1] < -0.5)
