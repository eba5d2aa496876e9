"""A table with things on it, seen from around: boxes, bottles, balls, bowls, books, stacks, shapes without a name."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from longtake.world.content import INDOORS, Room, Surroundings, World
from longtake.world.furniture import Shape, Solid, triple
from longtake.world.materials import Material, random_material
from longtake.world.placing import Placing, moved
from longtake.world.plan import Rectangle
from longtake.world.sky import random_sky
from longtake.world.things import Colour
from longtake.world.tracks import Motion, Track, any_motion, ring

_MOTIONS = {Motion.ORBIT: 0.6, Motion.HANDHELD: 0.33, Motion.STILL: 0.07}
_TOP = -0.75
"""y of the table's top."""
_TRIES = 12


def build_table(seed: int, rng: np.random.Generator) -> World:
    """The table of this seed."""
    half = (float(rng.uniform(0.45, 0.9)), float(rng.uniform(0.35, 0.7)))
    is_indoors = bool(rng.random() < 0.7)
    track = _track(rng)
    placing = Placing(track)
    room_half = float(rng.uniform(2.0, 4))
    surfaces = [random_material(rng, 1.0) for _ in range(3)]
    height = float(rng.uniform(2.3, 3.5))
    if is_indoors:
        _enclose(placing, room_half, height, rng)
    else:
        _add_backdrop(placing, rng)
    _add_table(placing, half, rng)
    _set(placing, half, rng)
    light = float(rng.uniform(0.7, 1.2)) if is_indoors else 0.0
    return World(
        seed=seed,
        height=height if is_indoors else math.inf,
        rooms=(
            Room(
                area=Rectangle((-room_half, -room_half), (room_half, room_half)),
                colour=Colour.WHITE,
                walls=surfaces[0],
                floor=surfaces[1],
                ceiling=surfaces[2],
                light=(light * float(rng.uniform(0.85, 1.1)), light, light * float(rng.uniform(0.8, 1.1))),
            ),
        ),
        things=(),
        parts=placing.parts,
        surroundings=_window_light(rng) if is_indoors else random_sky(rng, 120.0),
        shadows=placing.shadows,
        track=track,
    )


def _track(rng: np.random.Generator) -> Track:
    """Around the middle of the table, at 0.3 to 1.5 m."""
    motion = any_motion(_MOTIONS, rng)
    nearest = float(rng.uniform(0.4, 1.0))
    lowest = float(rng.uniform(0.15, 0.4))
    farthest, highest = nearest * float(rng.uniform(1.05, 1.5)), lowest + float(rng.uniform(0.05, 0.5))
    points = ring((0.0, _TOP, 0.0), (nearest, farthest), (lowest, highest), rng)
    focus = (float(rng.uniform(-0.1, 0.1)), _TOP - 0.08, float(rng.uniform(-0.1, 0.1)))
    return Track(motion=motion, points=points, is_closed=True, clearance=0.05, focus=focus)


def _window_light(rng: np.random.Generator) -> Surroundings:
    """Light from one side, as through a window."""
    bearing, height = float(rng.uniform(0, 2 * math.pi)), float(rng.uniform(0.3, 1.2))
    to_sun = (math.cos(height) * math.sin(bearing), -math.sin(height), math.cos(height) * math.cos(bearing))
    sun, ambient = float(rng.uniform(0, 0.6)), float(rng.uniform(0.05, 0.3))
    return replace(
        INDOORS,
        to_sun=to_sun,
        sun=(sun, sun, 0.95 * sun),
        ambient=(ambient, ambient, ambient),
        exposure=float(rng.uniform(0.85, 1.25)),
    )


def _enclose(placing: Placing, half: float, height: float, rng: np.random.Generator) -> None:
    """Four walls with a few large things before them."""
    for x, z, wide, deep in ((-1, 0, 0.1, half), (1, 0, 0.1, half), (0, -1, half, 0.1), (0, 1, half, 0.1)):
        wall = Solid(Shape.BOX, (x * (half + 0.1), -height / 2, z * (half + 0.1)), (wide, height / 2, deep))
        placing.add((wall, None), own_pattern=False)
    for _ in range(int(rng.integers(4, 14))):
        size = rng.uniform([0.1, 0.1, 0.02], [0.6, 0.7, 0.25])
        turn = int(rng.integers(4)) * math.pi / 2
        up = float(rng.choice([size[1], rng.uniform(0.8, height - 0.7)]))
        solid = Solid(
            Shape.BOX,
            (float(rng.uniform(-0.8, 0.8)) * half, -up, half - float(size[2])),
            triple(size),
        )
        placing.add((moved([solid], 0.0, 0.0, 0.0, turn)[0], random_material(rng, 0.6)))


def _add_backdrop(placing: Placing, rng: np.random.Generator) -> None:
    """Large solids a few metres around, on open ground."""
    materials = [random_material(rng, 2.0) for _ in range(6)]
    for index in range(int(rng.integers(8, 20))):
        bearing, away = index * 2.4, float(rng.uniform(3, 15))
        size = away * rng.uniform(0.08, 0.35, size=3)
        solid = Solid(
            Shape(int(rng.integers(3))),
            (away * math.sin(bearing), -float(size[1]), away * math.cos(bearing)),
            triple(size),
            float(rng.uniform(0, 6)),
        )
        placing.add((solid, materials[index % len(materials)]))


def _add_table(placing: Placing, half: tuple[float, float], rng: np.random.Generator) -> None:
    wood, thick = random_material(rng, 0.7), float(rng.uniform(0.012, 0.03))
    placing.add((Solid(Shape.BOX, (0.0, _TOP + thick, 0.0), (half[0], thick, half[1])), wood))
    legs = random_material(rng, 0.3)
    for x in (-1, 1):
        for z in (-1, 1):
            leg = Solid(
                Shape.BOX,
                (x * (half[0] - 0.05), (_TOP + 2 * thick) / 2, z * (half[1] - 0.05)),
                (0.03, -(_TOP + 2 * thick) / 2, 0.03),
            )
            placing.add((leg, legs))


def _set(placing: Placing, half: tuple[float, float], rng: np.random.Generator) -> None:
    """Things wherever there is room on the table, and out of the camera's way."""
    taken: list[tuple[float, float, float]] = []
    for _ in range(int(rng.integers(5, 26))):
        solids = _BUILDERS[int(rng.integers(len(_BUILDERS)))](rng)
        reach = max(math.hypot(s.center[0], s.center[2]) + max(s.half[0], s.half[2]) for s in solids)
        for _ in range(_TRIES):
            spread = float(rng.uniform(0.3, 1))
            x, z = (float(rng.uniform(-1, 1)) * spread * max(side - reach, 0.01) for side in half)
            is_free = all(math.hypot(x - at_x, z - at_z) > reach + other for at_x, at_z, other in taken)
            placed = moved(solids, x, _TOP, z, float(rng.uniform(0, 2 * math.pi)))
            if is_free and placing.add(*zip(placed, _coats(len(placed), rng), strict=True)):
                taken.append((x, z, reach))
                placing.shade(x, _TOP, z, 1.1 * reach)
                break


def _coats(count: int, rng: np.random.Generator) -> list[Material]:
    """One material for all parts of a thing, or two in turn."""
    materials = [random_material(rng, 0.25) for _ in range(int(rng.integers(1, 3)))]
    return [materials[index % len(materials)] for index in range(count)]


def _box(rng: np.random.Generator) -> list[Solid]:
    x, y, z = (float(value) for value in rng.uniform(0.02, 0.1, size=3))
    return [Solid(Shape.BOX, (0.0, -y, 0.0), (x, y, z))]


def _ball(rng: np.random.Generator) -> list[Solid]:
    radius, flat = float(rng.uniform(0.02, 0.07)), float(rng.choice([1.0, rng.uniform(0.6, 1.4)]))
    return [Solid(Shape.BALL, (0.0, -radius * flat, 0.0), (radius, radius * flat, radius))]


def _bottle(rng: np.random.Generator) -> list[Solid]:
    radius, body = float(rng.uniform(0.025, 0.045)), float(rng.uniform(0.06, 0.1))
    shoulder, neck = float(rng.uniform(0.01, 0.03)), float(rng.uniform(0.01, 0.03))
    thin = radius * float(rng.uniform(0.3, 0.5))
    return [
        Solid(Shape.TAPER, (0.0, -body, 0.0), (radius, body, radius)),
        Solid(Shape.TAPER, (0.0, -2 * body - shoulder, 0.0), (radius, shoulder, thin)),
        Solid(Shape.TAPER, (0.0, -2 * body - 2 * shoulder - neck, 0.0), (thin, neck, thin)),
    ]


def _bowl(rng: np.random.Generator) -> list[Solid]:
    """A bowl or cup with something in it."""
    foot, height = float(rng.uniform(0.02, 0.05)), float(rng.uniform(0.02, 0.05))
    rim = foot * float(rng.uniform(1.1, 2))
    fill = Solid(Shape.BALL, (0.0, -2 * height, 0.0), (0.85 * rim, 0.4 * height, 0.85 * rim))
    return [Solid(Shape.TAPER, (0.0, -height, 0.0), (foot, height, rim)), fill]


def _books(rng: np.random.Generator) -> list[Solid]:
    """A pile, or one that leans against another."""
    solids, top = [], 0.0
    x, z = float(rng.uniform(0.07, 0.13)), float(rng.uniform(0.05, 0.1))
    for _ in range(int(rng.integers(1, 6))):
        thick = float(rng.uniform(0.006, 0.025))
        solids.append(Solid(Shape.BOX, (0.0, top - thick, 0.0), (x, thick, z), float(rng.normal(0, 0.15))))
        top -= 2 * thick
    if rng.random() < 0.3:
        lean = float(rng.uniform(0.2, 0.5))
        solids.append(Solid(Shape.BOX, (0.0, -0.1, z + 0.05), (0.08, 0.1, 0.012), 0.0, -lean))
    return solids


def _stack(rng: np.random.Generator) -> list[Solid]:
    solids, top = [], 0.0
    for _ in range(int(rng.integers(2, 6))):
        x, y, z = (float(value) for value in rng.uniform(0.015, 0.05, size=3))
        shape = Shape(int(rng.choice([0, 0, 2])))
        solids.append(Solid(shape, (0.0, top - y, 0.0), (x, y, z), float(rng.uniform(0, 6))))
        top -= 2 * y
    return solids


def _compound(rng: np.random.Generator) -> list[Solid]:
    """Some solids at random angles, grown together."""
    size = float(rng.uniform(0.03, 0.08))
    solids = []
    for _ in range(int(rng.integers(3, 7))):
        half = size * rng.uniform(0.2, 0.9, size=3)
        center = size * rng.uniform([-0.6, -1.8, -0.6], [0.6, -0.4, 0.6])
        solids.append(
            Solid(
                Shape(int(rng.integers(3))),
                triple(center),
                triple(half),
                *(float(value) for value in rng.uniform(-1.5, 1.5, size=3)),
            )
        )
    return solids


_BUILDERS: tuple[Callable[[np.random.Generator], list[Solid]], ...] = (
    _box,
    _box,
    _ball,
    _bottle,
    _bottle,
    _bowl,
    _books,
    _stack,
    _compound,
)
