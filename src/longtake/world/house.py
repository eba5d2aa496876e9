"""Houses: a plan built up with walls, furniture, things on show and materials. The same seed gives the same house."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from longtake.errors import SettingError
from longtake.world.content import Part, Room, World
from longtake.world.furniture import Shape, Solid, build
from longtake.world.materials import ceiling, floor, glow, paint, trim, wallpaper, woven
from longtake.world.occupancy import Occupancy
from longtake.world.plan import Door, Plan, Rectangle, Wall, draw_plan
from longtake.world.things import Colour, Kind, Thing

WALL_HALF = 0.07
"""Half the thickness of a wall."""
TRIM_HALF = 0.04
_TRIES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class House(World):
    """Rooms on a floor plan."""

    plan: Plan
    occupancy: Occupancy
    """Where a camera can go."""

    @property
    def farthest(self) -> float:
        return math.hypot(*self.plan.footprint.size, self.height)


def build_house(seed: int) -> House:
    """The house of this seed."""
    if seed < 0:
        raise SettingError(f"Expected a house's seed as a whole number from 0, but got {seed}.")
    rng = np.random.default_rng([seed, 0])
    plan = draw_plan(rng)
    height = float(rng.uniform(2.4, 2.9))
    rooms = _paint_rooms(plan, rng)
    parts = [Part(solid, None) for solid in walls_of(plan, height)]
    parts += fixtures(plan, rooms, height, rng)
    occupancy = Occupancy.of_plan(plan, WALL_HALF)
    things: list[Thing] = []
    names = _names(rng)
    for index, room in enumerate(rooms):
        for _ in range(int(rng.integers(2, 5))):
            colour, kind = next(names)
            placed = place(kind, room.area, occupancy, rng)
            if placed is not None:
                material = paint(colour, rng)
                parts += [Part(solid, material, len(things)) for solid in placed]
                occupancy = occupancy.with_solids(placed)
                things.append(Thing(colour, kind, index))
    return House(
        seed=seed, plan=plan, height=height, rooms=rooms, things=tuple(things), parts=tuple(parts), occupancy=occupancy
    )


def _paint_rooms(plan: Plan, rng: np.random.Generator) -> tuple[Room, ...]:
    colours = list(Colour)
    picked = rng.permutation(len(colours))[: len(plan.rooms)]
    rooms = []
    for area, colour in zip(plan.rooms, (colours[index] for index in picked), strict=True):
        warmth, brightness = rng.uniform(-0.06, 0.06), rng.uniform(0.75, 1.05)
        light = tuple(float(brightness * (1 + warmth * tint)) for tint in (1, 0, -1))
        rooms.append(
            Room(
                area=area,
                colour=colour,
                walls=wallpaper(colour, rng),
                floor=floor(rng),
                ceiling=ceiling(rng),
                light=(light[0], light[1], light[2]),
            )
        )
    return tuple(rooms)


def _names(rng: np.random.Generator) -> Iterator[tuple[Colour, Kind]]:
    """Every colour and kind in random order, so that no name comes twice; each house has kinds that it favours."""
    pairs = [(colour, kind) for colour in Colour for kind in Kind]
    favour = np.tile(rng.exponential(size=len(Kind)) ** 1.5, len(Colour))
    return (pairs[index] for index in np.argsort(rng.exponential(size=len(pairs)) / favour))


def walls_of(plan: Plan, height: float) -> Iterator[Solid]:
    """All walls of a plan, with their doors open."""
    for wall in plan.walls:
        doors = sorted((door for door in plan.doors if door.wall == wall), key=lambda door: door.middle)
        start = wall.start - WALL_HALF
        for door in doors:
            yield upright(wall, start, door.middle - door.width / 2, (0.0, height))
            yield upright(wall, door.middle - door.width / 2, door.middle + door.width / 2, (door.height, height))
            start = door.middle + door.width / 2
        yield upright(wall, start, wall.stop + WALL_HALF, (0.0, height))


def upright(
    wall: Wall,
    start: float,
    stop: float,
    heights: tuple[float, float],
    half: float = WALL_HALF,
    at: float | None = None,
) -> Solid:
    """A box along a wall, from one height above the floor to another."""
    low, high = heights
    along, across = (start + stop) / 2, wall.at if at is None else at
    center = (across, -(low + high) / 2, along) if wall.axis == 0 else (along, -(low + high) / 2, across)
    half_along, half_up = (stop - start) / 2, (high - low) / 2
    size = (half, half_up, half_along) if wall.axis == 0 else (half_along, half_up, half)
    return Solid(Shape.BOX, center, size)


def fixtures(plan: Plan, rooms: tuple[Room, ...], height: float, rng: np.random.Generator) -> list[Part]:
    """Door frames, windows, pictures, rugs and panels of light: what makes a room a room, and is never asked about."""
    frame, pane = trim(rng), glow((0.82, 0.9, 1.0))
    parts = [Part(solid, frame) for door in plan.doors for solid in _door_frame(door)]
    for wall in plan.walls:
        inner_side = 1 if wall.at == plan.footprint.low[wall.axis] else -1
        if wall.rooms is None and rng.random() < 0.8:
            middle = float(rng.uniform(wall.start + 1, wall.stop - 1))
            face = wall.at + inner_side * WALL_HALF
            parts.append(Part(upright(wall, middle - 0.6, middle + 0.6, (0.9, 1.9), 0.03, face), frame))
            for side in (-0.29, 0.29):
                panes = upright(wall, middle + side - 0.24, middle + side + 0.24, (0.98, 1.82), 0.035, face)
                parts.append(Part(panes, pane))
    for room in rooms:
        x, z = room.area.center
        parts.append(Part(Solid(Shape.BOX, (x, 0.02 - height, z), (0.3, 0.02, 0.3)), glow((1.0, 0.97, 0.9))))
        if rng.random() < 0.6:
            half_x, half_z = (float(0.5 * side - rng.uniform(0.7, 1.0)) for side in room.area.size)
            parts.append(Part(Solid(Shape.BOX, (x, -0.006, z), (half_x, 0.006, half_z)), woven(rng)))
    return parts + _pictures(plan, rng)


def _door_frame(door: Door) -> list[Solid]:
    left, right = door.middle - door.width / 2, door.middle + door.width / 2
    half = WALL_HALF + 0.015
    return [
        upright(door.wall, left - TRIM_HALF, left + 0.01, (0.0, door.height), half),
        upright(door.wall, right - 0.01, right + TRIM_HALF, (0.0, door.height), half),
        upright(door.wall, left - TRIM_HALF, right + TRIM_HALF, (door.height - 0.01, door.height + TRIM_HALF), half),
    ]


def _pictures(plan: Plan, rng: np.random.Generator) -> list[Part]:
    """Patterned panels on inner walls, away from doors; both sides of a wall may show one."""
    parts = []
    for wall in plan.walls:
        if wall.rooms is None or wall.stop - wall.start < 1.2 or rng.random() < 0.3:
            continue
        middle, half_width = float(rng.uniform(wall.start + 0.5, wall.stop - 0.5)), float(rng.uniform(0.2, 0.4))
        clear = all(
            abs(door.middle - middle) > door.width / 2 + half_width + 0.1 for door in plan.doors if door.wall == wall
        )
        inside = wall.start + 0.1 + half_width < middle < wall.stop - 0.1 - half_width
        if clear and inside:
            low = float(rng.uniform(1.2, 1.4))
            high = low + float(rng.uniform(0.35, 0.6))
            solid = upright(wall, middle - half_width, middle + half_width, (low, high), WALL_HALF + 0.015)
            parts.append(Part(solid, woven(rng)))
    return parts


def place(kind: Kind, area: Rectangle, occupancy: Occupancy, rng: np.random.Generator) -> tuple[Solid, ...] | None:
    """A thing at a free place of the room that leaves every way open, or none where it does not fit."""
    solids = build(kind, rng)
    for _ in range(_TRIES):
        moved = _against_wall(solids, area, rng) if kind is Kind.SHELF else _anywhere(solids, area, rng)
        if occupancy.allows(moved) and occupancy.with_solids(moved).every_door_is_open:
            return moved
    return None


def _anywhere(solids: tuple[Solid, ...], area: Rectangle, rng: np.random.Generator) -> tuple[Solid, ...]:
    x, z = (float(rng.uniform(low + 0.3, high - 0.3)) for low, high in zip(area.low, area.high, strict=True))
    turn = float(rng.uniform(0, 2 * np.pi))
    return tuple(solid.moved(x, 0.0, z, turn) for solid in solids)


def _against_wall(solids: tuple[Solid, ...], area: Rectangle, rng: np.random.Generator) -> tuple[Solid, ...]:
    """Its back, which looks along its own z, to one of the four walls."""
    side = int(rng.integers(4))
    turn = side * np.pi / 2
    depth = max(solid.half[2] for solid in solids)
    back = WALL_HALF + depth + 0.08
    x, z = (float(rng.uniform(low + 0.3, high - 0.3)) for low, high in zip(area.low, area.high, strict=True))
    x, z = [(x, area.high[1] - back), (area.high[0] - back, z), (x, area.low[1] + back), (area.low[0] + back, z)][side]
    return tuple(solid.moved(x, 0.0, z, turn) for solid in solids)
