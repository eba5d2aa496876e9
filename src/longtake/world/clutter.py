"""Clutter: many solids of random shape, size, rotation and material, without sense, in a hall, a yard or nowhere."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from longtake.world.content import INDOORS, Room, Surroundings, World
from longtake.world.furniture import Shape, Solid, triple
from longtake.world.materials import Material, glow, random_material, random_tone
from longtake.world.placing import Placing
from longtake.world.plan import Rectangle
from longtake.world.sky import random_sky
from longtake.world.things import Colour
from longtake.world.tracks import Motion, Track, any_motion, ring, rounded

_FEWEST, _MOST = 75, 320
"""Solids drawn, of which some lie in the way and are left out."""
_MOTIONS = {Motion.ORBIT: 0.25, Motion.FLY: 0.2, Motion.HANDHELD: 0.35, Motion.TURN: 0.13, Motion.STILL: 0.07}


def build_clutter(seed: int, rng: np.random.Generator) -> World:
    """The clutter of this seed: first the camera's way, then solids beside it."""
    size = float(np.exp(rng.uniform(np.log(1.2), np.log(12))))
    kind = str(rng.choice(["hall", "yard", "nowhere"], p=[0.4, 0.35, 0.25]))
    materials = [
        random_material(rng, size * float(np.exp(rng.uniform(-1.6, 0)))) for _ in range(int(rng.integers(12, 40)))
    ]
    if rng.random() < 0.3:
        materials.append(glow(random_tone(rng)))
    track = _track(size, kind, rng)
    placing = Placing(track)
    for solid in _enclosure(size, kind, rng):
        assert placing.add((solid, _any(materials, rng))), "the way lies within what encloses it"
    for solid in _clutter(size, kind, rng):
        placing.add((solid, _any(materials, rng)))
    return World(
        seed=seed,
        height=1.3 * size if kind == "hall" else math.inf,
        rooms=(_room(size, kind, rng),),
        things=(),
        parts=placing.parts,
        surroundings=_surroundings(size, kind, rng),
        track=track,
    )


def _any(materials: list[Material], rng: np.random.Generator) -> Material:
    return materials[int(rng.integers(len(materials)))]


def _track(size: float, kind: str, rng: np.random.Generator) -> Track:
    """Around the middle, or anywhere within the volume; camera and solids share the room between 0 and `size` up."""
    motion = any_motion(_MOTIONS, rng)
    middle = (0.0, -0.5 * size, 0.0)
    if motion is Motion.ORBIT or rng.random() < 0.3:
        points = ring(middle, (0.5 * size, 0.9 * size), (-0.25 * size, 0.4 * size), rng)
    else:
        corners = rng.uniform([-0.8, -0.95, -0.8], [0.8, -0.12, 0.8], size=(int(rng.integers(4, 8)), 3)) * size
        points = rounded(corners, is_closed=True)
    return Track(
        motion=motion,
        points=points,
        is_closed=True,
        clearance=0.05 * size,
        focus=middle if motion is Motion.ORBIT or rng.random() < (0.7 if kind == "yard" else 0.4) else None,
        least_down_rad=-math.pi if kind != "yard" else 0.05,
    )


def _enclosure(size: float, kind: str, rng: np.random.Generator) -> list[Solid]:
    """Four walls, some walls, or great solids far around."""
    half = 1.15 * size
    if kind == "nowhere":
        count = int(rng.integers(20, 30))
        return [_backdrop(index, count, size, rng) for index in range(count)]
    walls = [
        Solid(Shape.BOX, (x * (half + 0.05 * size), -size, z * (half + 0.05 * size)), (width, 1.5 * size, depth))
        for x, z, width, depth in (
            (-1, 0, 0.05 * size, half),
            (1, 0, 0.05 * size, half),
            (0, -1, half, 0.05 * size),
            (0, 1, half, 0.05 * size),
        )
    ]
    return walls if kind == "hall" else [wall for wall in walls if rng.random() < 0.4]


def _backdrop(index: int, count: int, size: float, rng: np.random.Generator) -> Solid:
    """One of many evenly around (a Fibonacci lattice), so that most directions end somewhere."""
    up = 1 - (2 * index + 1) / count
    turn = index * math.pi * (3 - math.sqrt(5))
    level = math.sqrt(1 - up * up)
    away = size * float(rng.uniform(2.4, 3.5))
    center = (away * level * math.sin(turn), -0.5 * size - away * up, away * level * math.cos(turn))
    half = size * rng.uniform(0.5, 0.9, size=3)
    return _turned(Solid(Shape(int(rng.choice([0, 0, 1]))), center, triple(half)), rng)


def _clutter(size: float, kind: str, rng: np.random.Generator) -> Iterator[Solid]:
    """More than will find a place, here and there and around a few middles, some of them on the ground."""
    count = int(np.exp(rng.uniform(np.log(_FEWEST), np.log(_MOST))))
    upright = rng.choice([0.0, 0.3, 0.8])
    bounds = (0.015 * size, float(rng.uniform(0.12, 0.4)) * size)
    clusters = rng.uniform([-0.8, -0.8, -0.8], [0.8, -0.1, 0.8], size=(int(rng.integers(3, 9)), 3)) * size
    for _ in range(count):
        solid = _random_solid(Shape(int(rng.choice(3, p=[0.58, 0.24, 0.18]))), bounds, rng)
        if rng.random() < 0.5:
            x, y, z = clusters[int(rng.integers(len(clusters)))] + rng.normal(0, 0.15 * size, size=3)
        else:
            x, y, z = rng.uniform([-1, -1, -1], [1, 0, 1]) * size
        if kind != "nowhere" and rng.random() < 0.45:
            y = -solid.half[1]
        solid = replace(solid, center=(float(x), float(y), float(z)))
        yield replace(solid, turn_rad=float(rng.uniform(0, 6.28))) if rng.random() < upright else _turned(solid, rng)


def _random_solid(shape: Shape, bounds: tuple[float, float], rng: np.random.Generator) -> Solid:
    """Of log-uniform size, with half axes that differ by a few times."""
    length = float(np.exp(rng.uniform(*np.log(bounds))))
    first, second, third = (float(value) for value in length * np.exp(rng.uniform(-1.2, 0.3, size=3)))
    if shape is Shape.BALL and rng.random() < 0.4:
        second = third = first
    if shape is Shape.TAPER:
        third = first * float(rng.choice([0.0, 1.0, rng.uniform(0, 1)]))
    return Solid(shape, (0.0, 0.0, 0.0), (first, second, third))


def _turned(solid: Solid, rng: np.random.Generator) -> Solid:
    """In any direction, all alike likely."""
    turn, roll = (float(value) for value in rng.uniform(0, 2 * np.pi, size=2))
    return replace(solid, turn_rad=turn, pitch_rad=math.asin(rng.uniform(-1, 1)), roll_rad=roll)


def _room(size: float, kind: str, rng: np.random.Generator) -> Room:
    floor, walls, ceiling = (random_material(rng, size) for _ in range(3))
    bright = float(rng.uniform(0.7, 1.3)) if kind == "hall" else 0.0
    warmth = rng.uniform(-0.2, 0.2, size=3)
    return Room(
        area=Rectangle((-1.15 * size, -1.15 * size), (1.15 * size, 1.15 * size)),
        colour=Colour.WHITE,
        walls=walls,
        floor=floor,
        ceiling=ceiling,
        light=(bright * float(1 + warmth[0]), bright * float(1 + warmth[1]), bright * float(1 + warmth[2])),
    )


def _surroundings(size: float, kind: str, rng: np.random.Generator) -> Surroundings:
    if kind == "hall":
        ambient = rng.uniform(0.35, 0.7) * (1 + rng.uniform(-0.12, 0.12, size=3))
        lamps = triple(ambient)
        return replace(INDOORS, ambient=lamps, exposure=float(rng.uniform(0.85, 1.3)))
    sky = random_sky(rng, 60 * size)
    return replace(sky, ground=math.inf) if kind == "nowhere" else sky
