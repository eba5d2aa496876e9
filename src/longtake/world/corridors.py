"""Corridors: long halls that look alike, around corners and across, with few marks to tell one place from another."""

import math
from dataclasses import dataclass, replace

import numpy as np

from longtake.world.content import INDOORS, Room, World
from longtake.world.furniture import Shape, Solid, triple
from longtake.world.materials import Material, glow, light_tone, random_material
from longtake.world.placing import Placing
from longtake.world.plan import Rectangle
from longtake.world.things import Colour
from longtake.world.tracks import Motion, Track, any_motion, rounded

_MOTIONS = {Motion.WALK: 0.4, Motion.HANDHELD: 0.25, Motion.DRIVE: 0.18, Motion.TURN: 0.12, Motion.STILL: 0.05}
_THICK = 0.1
"""Half the thickness of an outer wall."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """A round of four corridors and one across, by their middle lines; lengths in metres."""

    half_x: float
    half_z: float
    width: float
    height: float
    spacing: float
    """Between doors, lamps and pillars."""

    @property
    def inner(self) -> tuple[float, float]:
        return (self.half_x - self.width / 2, self.half_z - self.width / 2)

    @property
    def outer(self) -> tuple[float, float]:
        return (self.half_x + self.width / 2, self.half_z + self.width / 2)


def build_corridors(seed: int, rng: np.random.Generator) -> World:
    """The corridors of this seed."""
    layout = _Layout(
        half_x=float(rng.uniform(4, 10)),
        half_z=float(rng.uniform(5.5, 12)),
        width=float(rng.uniform(1.6, 3.8)),
        height=float(rng.uniform(2.3, 4.2)),
        spacing=float(rng.uniform(2.2, 4)),
    )
    track = _track(layout, rng)
    placing = Placing(track)
    _build_walls(placing, layout, rng)
    _repeat(placing, layout, rng)
    _distinguish(placing, layout, rng)
    surfaces = [random_material(rng, float(rng.uniform(0.6, 1.6)), light_tone(rng)) for _ in range(3)]
    ambient = rng.uniform(0.3, 0.6) * (1 + rng.uniform(-0.1, 0.1, size=3))
    return World(
        seed=seed,
        height=layout.height,
        rooms=_rooms(layout, surfaces, rng),
        things=(),
        parts=placing.parts,
        surroundings=replace(
            INDOORS,
            ambient=triple(ambient),
            exposure=float(rng.uniform(0.85, 1.2)),
        ),
        track=track,
    )


def _track(layout: _Layout, rng: np.random.Generator) -> Track:
    """Around all four corridors, or around half of them through the one across."""
    x, z = layout.half_x, layout.half_z
    near = 0.0 if rng.random() < 0.5 else -z
    height = float(rng.uniform(0.4, min(2.2, layout.height - 0.45)))
    cut = 0.3 * layout.width
    corners = []
    for at_x, at_z in ((-x, near), (-x, z), (x, z), (x, near)):
        inward_x, inward_z = -math.copysign(cut, at_x), -math.copysign(cut, at_z - (near + z) / 2)
        both = [(at_x, at_z + inward_z), (at_x + inward_x, at_z)]
        corners += both if at_x * (at_z - (near + z) / 2) < 0 else both[::-1]
    if rng.random() < 0.5:
        corners.reverse()
    points = rounded(np.array([(x, -height, z) for x, z in corners]), is_closed=True, rounds=2)
    start = int(rng.integers(len(points)))
    return Track(
        motion=any_motion(_MOTIONS, rng), points=(*points[start:], *points[:start]), is_closed=True, clearance=0.2
    )


def _rooms(layout: _Layout, surfaces: list[Material], rng: np.random.Generator) -> tuple[Room, ...]:
    """Each corridor is a room with its own light; all have the same surfaces."""
    (inner_x, inner_z), (outer_x, outer_z) = layout.inner, layout.outer
    half = layout.width / 2
    areas = [
        Rectangle((-outer_x, inner_z), (outer_x, outer_z)),
        Rectangle((-outer_x, -outer_z), (outer_x, -inner_z)),
        Rectangle((-outer_x, -inner_z), (-inner_x, inner_z)),
        Rectangle((inner_x, -inner_z), (outer_x, inner_z)),
        Rectangle((-inner_x, -half), (inner_x, half)),
    ]
    bright = float(rng.uniform(0.4, 0.8))
    lights = bright * rng.uniform(0.8, 1.2, size=len(areas))
    return tuple(
        Room(
            area=area,
            colour=Colour.WHITE,
            walls=surfaces[0],
            floor=surfaces[1],
            ceiling=surfaces[2],
            light=(float(light), float(light), float(0.95 * light)),
        )
        for area, light in zip(areas, lights, strict=True)
    )


def _build_walls(placing: Placing, layout: _Layout, rng: np.random.Generator) -> None:
    """Two blocks with a corridor between them, and walls around with dead ends here and there."""
    (inner_x, inner_z), (outer_x, outer_z) = layout.inner, layout.outer
    half_y, middle = layout.height / 2, layout.width / 2
    for side in (-1, 1):
        block = Solid(
            Shape.BOX, (0.0, -half_y, side * (inner_z + middle) / 2), (inner_x, half_y, (inner_z - middle) / 2)
        )
        placing.add((block, None), own_pattern=False)
        for is_x, at, along in ((True, outer_z, outer_x), (False, outer_x, outer_z)):
            gap = float(rng.uniform(-0.6, 0.6)) * along if rng.random() < 0.6 else None
            spans = [(-along, along)] if gap is None else [(-along, gap - middle), (gap + middle, along)]
            for start, stop in spans:
                _wall(placing, layout, (start, stop), side * (at + _THICK), is_x=is_x)
            if gap is not None:
                deep = float(rng.uniform(2, 5))
                _wall(placing, layout, (gap - middle, gap + middle), side * (at + deep), is_x=is_x)
                for edge in (gap - middle - _THICK, gap + middle + _THICK):
                    ends = sorted((side * at, side * (at + deep)))
                    _wall(placing, layout, (ends[0], ends[1]), edge, is_x=not is_x)


def _wall(placing: Placing, layout: _Layout, span: tuple[float, float], at: float, *, is_x: bool) -> None:
    middle, half, half_y = (span[0] + span[1]) / 2, (span[1] - span[0]) / 2, layout.height / 2
    center = (middle, -half_y, at) if is_x else (at, -half_y, middle)
    size = (half, half_y, _THICK) if is_x else (_THICK, half_y, half)
    assert placing.add((Solid(Shape.BOX, center, size), None), own_pattern=False), "the way lies between the walls"


def _repeat(placing: Placing, layout: _Layout, rng: np.random.Generator) -> None:
    """Doors, lamps and pillars at even distances, all alike."""
    door, frame = random_material(rng, 0.8), random_material(rng, 0.3)
    lamp = glow((1.0, 0.97, 0.9))
    pillar, has_pillars = random_material(rng, 0.6), layout.width > 2.4 and rng.random() < 0.6
    door_half, door_height = float(rng.uniform(0.38, 0.5)), float(rng.uniform(1.95, 2.15))
    lamp_half = (float(rng.uniform(0.1, 0.6)), 0.02, float(rng.uniform(0.1, 0.3)))
    for along, across in ((layout.half_x, layout.half_z), (layout.half_z, layout.half_x)):
        is_x = across == layout.half_z
        count = int((2 * along - layout.width) / layout.spacing)
        for place in (np.arange(count) + 0.5) / count * (2 * along - layout.width) - along + layout.width / 2:
            for side in (-1, 1):
                above = (side * across, -layout.height + 0.02, float(place))
                placing.add((_across(Solid(Shape.BOX, above, lamp_half), is_x=is_x), lamp))
                for wall in (-1, 1):
                    if abs(place) < layout.width and wall * side < 0:
                        continue  # where the corridor across begins
                    at = side * across + wall * layout.width / 2
                    _add_door(placing, (at, float(place)), (door_half, door_height), (door, frame), is_x=is_x)
                if has_pillars:
                    at = side * (across + 0.5 * layout.width - 0.2)
                    post = Solid(
                        Shape.TAPER,
                        (at, -layout.height / 2, float(place) + 0.5 * layout.spacing),
                        (0.16, layout.height / 2, 0.16),
                    )
                    placing.add((_across(post, is_x=is_x), pillar))


def _add_door(
    placing: Placing,
    spot: tuple[float, float],
    size: tuple[float, float],
    materials: tuple[Material, Material],
    *,
    is_x: bool,
) -> None:
    at, place = spot
    half, height = size
    leaf = Solid(Shape.BOX, (at, -height / 2, place), (0.03, height / 2, half))
    frame = Solid(Shape.BOX, (at, -height / 2 - 0.04, place), (0.02, height / 2 + 0.04, half + 0.08))
    placing.add((_across(leaf, is_x=is_x), materials[0]), (_across(frame, is_x=is_x), materials[1]))


def _across(solid: Solid, *, is_x: bool) -> Solid:
    """x and z exchanged where a corridor runs along x."""
    if not is_x:
        return solid
    (x, y, z), (half_x, half_y, half_z) = solid.center, solid.half
    half = solid.half if solid.shape is Shape.TAPER else (half_z, half_y, half_x)
    return replace(solid, center=(z, y, x), half=half)


def _distinguish(placing: Placing, layout: _Layout, rng: np.random.Generator) -> None:
    """A few things that are nowhere else: notices on walls, and what was left standing."""
    for _ in range(int(rng.integers(3, 12))):
        side, wall, is_x = int(rng.choice([-1, 1])), int(rng.choice([-1, 1])), bool(rng.random() < 0.5)
        along, across = (layout.half_x, layout.half_z) if is_x else (layout.half_z, layout.half_x)
        place = float(rng.uniform(-0.9, 0.9)) * along
        material = random_material(rng, 0.5)
        if rng.random() < 0.5:
            at = side * across + wall * layout.width / 2
            half = (0.04, float(rng.uniform(0.12, 0.4)), float(rng.uniform(0.12, 0.5)))
            notice = Solid(Shape.BOX, (at, -float(rng.uniform(1.1, 1.8)), place), half)
            placing.add((_across(notice, is_x=is_x), replace(material, mark=0.9, mark_size=0.03)))
        else:
            size = rng.uniform(0.08, 0.35, size=3)
            at = side * across + wall * (layout.width / 2 - float(size[0]) - 0.05)
            shape = Shape(int(rng.integers(3)))
            solid = Solid(shape, (at, -float(size[1]), place), triple(size))
            turned = replace(_across(solid, is_x=is_x), turn_rad=float(rng.uniform(-0.4, 0.4)))
            placing.add((turned, material))
