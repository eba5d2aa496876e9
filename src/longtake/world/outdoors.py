"""Outdoors: a street around a block, or a park with hills; buildings, trees, poles, cars and fences under a sky."""

import math
from dataclasses import dataclass, replace

import numpy as np

from longtake.world.content import Room, World
from longtake.world.furniture import Shape, Solid, triple
from longtake.world.materials import Material, plain, random_material, random_tone
from longtake.world.placing import Placing, moved
from longtake.world.sky import random_sky
from longtake.world.tracks import Motion, Track, any_motion, ring, rounded

_ON_STREETS = {
    Motion.DRIVE: 0.35,
    Motion.WALK: 0.15,
    Motion.HANDHELD: 0.15,
    Motion.FLY: 0.15,
    Motion.ORBIT: 0.08,
    Motion.TURN: 0.08,
    Motion.STILL: 0.04,
}
_IN_PARKS = {
    Motion.WALK: 0.25,
    Motion.HANDHELD: 0.25,
    Motion.FLY: 0.22,
    Motion.ORBIT: 0.16,
    Motion.TURN: 0.08,
    Motion.STILL: 0.04,
}
_REACH = 450.0
_KERB = 0.12


@dataclass(frozen=True, slots=True)
class _Materials:
    """What a place is built of; a few of each, so that it looks like one place."""

    facades: list[Material]
    roofs: list[Material]
    leaves: list[Material]
    bark: Material
    metal: Material
    paints: list[Material]
    signs: list[Material]
    rock: Material


def build_outdoors(seed: int, rng: np.random.Generator) -> World:
    """The street or park of this seed."""
    materials = _draw_materials(rng)
    is_street = bool(rng.random() < 0.6)
    half = (float(rng.uniform(11, 28)), float(rng.uniform(11, 28)))
    road = float(rng.uniform(5.5, 9))
    track = _street_track(half, road, rng) if is_street else _park_track(rng)
    placing = Placing(track)
    if is_street:
        _pave(placing, half, road, rng)
        _line_street(placing, half, road, materials, rng)
    else:
        _lay_out_park(placing, materials, rng)
    _surround(placing, materials, rng)
    ground = _asphalt(rng) if is_street else _grass(rng)
    return World(
        seed=seed,
        height=math.inf,
        rooms=(Room.open_ground(200.0, ground),),
        things=(),
        parts=placing.parts,
        surroundings=random_sky(rng, _REACH),
        shadows=placing.shadows,
        track=track,
    )


def _draw_materials(rng: np.random.Generator) -> _Materials:
    return _Materials(
        facades=[_facade(rng) for _ in range(int(rng.integers(4, 9)))],
        roofs=[random_material(rng, 1.5, _earthy(rng)) for _ in range(3)],
        leaves=[_foliage(rng) for _ in range(4)],
        bark=plain((0.32, 0.24, 0.17), rng, grain=(0.15, 0.15, 0.1), size=2.0),
        metal=plain((0.45, 0.46, 0.48), rng, grain=(0.03, 0.03, 0.03)),
        paints=[plain(random_tone(rng), rng, grain=(0.02, 0.02, 0.05)) for _ in range(6)],
        signs=[replace(random_material(rng, 2.0), mark=1.0, mark_size=float(rng.uniform(0.1, 0.25))) for _ in range(4)],
        rock=random_material(rng, 2.0, (0.5, 0.48, 0.45)),
    )


def _facade(rng: np.random.Generator) -> Material:
    """Panes in a wall: cells are glass, wide joints the wall."""
    if rng.random() < 0.2:
        return random_material(rng, 5.0)
    wall, glass = random_tone(rng), np.array([0.2, 0.26, 0.32]) * rng.uniform(0.5, 1.8)
    width, storey = float(rng.uniform(1.3, 3.2)), float(rng.uniform(2.7, 3.6))
    return replace(
        plain(wall, rng, grain=(0.06, 0.05, 0.06), size=2.0),
        red=float(glass[0]),
        green=float(glass[1]),
        blue=float(glass[2]),
        cell_u=width,
        cell_v=storey,
        joint=min(width, storey) * float(rng.uniform(0.3, 0.65)),
        cell_contrast=float(rng.uniform(0.2, 1.2)),
        joint_mix=1.0,
        second_red=wall[0],
        second_green=wall[1],
        second_blue=wall[2],
        offset=float(rng.integers(10)),
    )


def _foliage(rng: np.random.Generator) -> Material:
    tone = np.array([0.25, 0.42, 0.14]) * rng.uniform(0.6, 1.3) + np.array([1.0, 0.3, 0]) * rng.choice(
        [0.0, 0.3], p=[0.8, 0.2]
    )
    base = plain(triple(tone), rng, grain=(0.25, 0.25, 0.15), size=2.5)
    dark = 0.45 * tone
    return replace(
        base,
        second_red=float(dark[0]),
        second_green=float(dark[1]),
        second_blue=float(dark[2]),
        blot=float(rng.uniform(0.4, 1.2)),
        mottle=1.0,
        mottle_sharpness=float(rng.uniform(0.5, 2)),
    )


def _earthy(rng: np.random.Generator) -> tuple[float, float, float]:
    value = rng.uniform(0.25, 0.6)
    return (float(value), float(value * rng.uniform(0.5, 0.95)), float(value * rng.uniform(0.4, 0.9)))


def _asphalt(rng: np.random.Generator) -> Material:
    grey = float(rng.uniform(0.22, 0.45))
    return replace(
        plain((grey, grey, 1.03 * grey), rng, grain=(0.15, 0.1, 0.1), size=1.5),
        **_second(np.full(3, 0.75 * grey)),
        blot=float(rng.uniform(2, 6)),
        mottle=0.7,
        mottle_sharpness=3.0,
    )


def _grass(rng: np.random.Generator) -> Material:
    tone = np.array([0.34, 0.46, 0.2]) * rng.uniform(0.7, 1.3) + rng.uniform(0, 0.25) * np.array([1, 0.6, 0.2])
    return replace(
        plain(triple(tone), rng, grain=(0.2, 0.2, 0.15), size=2.5),
        **_second(0.7 * tone + np.array([0.1, 0.05, 0.0])),
        blot=float(rng.uniform(1.5, 8)),
        mottle=1.0,
        mottle_sharpness=float(rng.uniform(0.4, 2)),
    )


def _second(tone: np.ndarray) -> dict[str, float]:
    return {"second_red": float(tone[0]), "second_green": float(tone[1]), "second_blue": float(tone[2])}


def _street_track(half: tuple[float, float], road: float, rng: np.random.Generator) -> Track:
    """Along the street, over it, or around what stands in the middle."""
    motion = any_motion(_ON_STREETS, rng)
    if motion is Motion.FLY:
        return _flight(0.9 * min(half), rng)
    if motion is Motion.ORBIT:
        radius = min(half)
        points = ring((0.0, 0.0, 0.0), (0.85 * radius, 1.1 * radius), (1.5, float(rng.uniform(2, 12))), rng)
        return Track(
            motion=motion, points=points, is_closed=True, clearance=0.6, focus=(0.0, -3.5, 0.0), least_down_rad=0.02
        )
    on_foot = motion in {Motion.WALK, Motion.HANDHELD}
    aside = -(road / 2 + 1.3) if on_foot else float(rng.choice([-1, 1])) * road / 4
    height = float(rng.uniform(1.4, 1.8)) if on_foot else float(rng.uniform(1.1, 2.4))
    x, z = half[0] + aside, half[1] + aside
    cut = 3.0 if on_foot else 5.0
    corners = [
        (-x, z - cut),
        (-x + cut, z),
        (x - cut, z),
        (x, z - cut),
        (x, cut - z),
        (x - cut, -z),
        (cut - x, -z),
        (-x, cut - z),
    ]
    if rng.random() < 0.5:
        corners.reverse()
    points = rounded(np.array([(x, -height, z) for x, z in corners]), is_closed=True)
    start = int(rng.integers(len(points)))
    return Track(
        motion=motion, points=(*points[start:], *points[:start]), is_closed=True, clearance=0.4, least_down_rad=0.02
    )


def _flight(radius: float, rng: np.random.Generator) -> Track:
    low = float(rng.uniform(5, 18))
    points = ring((0.0, 0.0, 0.0), (0.35 * radius, radius), (low, low * float(rng.uniform(1.1, 2))), rng, num_corners=9)
    return Track(
        motion=Motion.FLY,
        points=points,
        is_closed=True,
        clearance=1.0,
        focus=(0.0, -1.0, 0.0) if rng.random() < 0.3 else None,
        least_down_rad=0.12,
    )


def _park_track(rng: np.random.Generator) -> Track:
    motion = any_motion(_IN_PARKS, rng)
    radius = float(rng.uniform(7, 20))
    if motion is Motion.FLY:
        return _flight(radius, rng)
    height = float(rng.uniform(0.6, 2.2))
    points = ring((0.0, 0.0, 0.0), (0.6 * radius, radius), (height, height + 0.2), rng, num_corners=10)
    return Track(
        motion=motion,
        points=points,
        is_closed=True,
        clearance=0.4,
        focus=(0.0, -1.2, 0.0) if motion in {Motion.ORBIT, Motion.STILL} else None,
        least_down_rad=0.02,
    )


def _pave(placing: Placing, half: tuple[float, float], road: float, rng: np.random.Generator) -> None:
    """Pavements with kerbs on both sides of the street, and marks along its middle."""
    stone = random_material(rng, 1.0, _grey(rng))
    line = replace(
        plain((0.85, 0.85, 0.8), rng, grain=(0.1, 0.1, 0.1)),
        **_second(np.full(3, 0.3)),
        stripe=float(rng.choice([0.0, 1.0])),
        stripe_period=float(rng.uniform(3, 6)),
    )
    x, z = half
    inner_x, inner_z, outer_x, outer_z = x - road / 2, z - road / 2, x + road / 2, z + road / 2
    wide = 4.0
    placing.add((_slab(0.0, 0.0, inner_x, inner_z, _KERB), stone))
    for side in (-1, 1):
        placing.add((_slab(0.0, side * (outer_z + wide), outer_x + 2 * wide, wide, _KERB), stone))
        placing.add((_slab(side * (outer_x + wide), 0.0, wide, outer_z, _KERB), stone))
        placing.add((_slab(0.0, side * z, x - 3, 0.08, 0.006), line))
        turned = replace(_slab(side * x, 0.0, z - 3, 0.08, 0.006), turn_rad=math.pi / 2)
        placing.add((turned, line))


def _grey(rng: np.random.Generator) -> tuple[float, float, float]:
    value = float(rng.uniform(0.3, 0.58))
    return (value, value * float(rng.uniform(0.9, 1)), value * float(rng.uniform(0.85, 1)))


def _slab(x: float, z: float, half_x: float, half_z: float, height: float) -> Solid:
    return Solid(Shape.BOX, (x, -height / 2, z), (half_x, height / 2, half_z))


def _line_street(
    placing: Placing, half: tuple[float, float], road: float, materials: _Materials, rng: np.random.Generator
) -> None:
    """Buildings along both sides, then what stands before them."""
    x, z = half
    if min(half) - road / 2 > 9:
        _add_building(placing, (0.0, 0.0), (min(half) - road / 2 - 4) * 0.6, materials, rng)
    for side in (-1, 1):
        for along, at, is_x in ((x, z, True), (z, x, False)):
            place = -along - 12
            while place < along + 12:
                wide = float(rng.uniform(3, 8))
                deep = float(rng.uniform(4, 8))
                away = side * (at + road / 2 + float(rng.uniform(2.5, 7)) + deep)
                if rng.random() < 0.85:
                    middle = (place + wide, away) if is_x else (away, place + wide)
                    sizes = (wide, deep) if is_x else (deep, wide)
                    _add_block(placing, middle, sizes, materials, rng)
                place += 2 * wide + float(rng.choice([0.0, rng.uniform(0.5, 5)]))
    for _ in range(25):
        yard = (float(rng.uniform(-0.9, 0.9)) * (x - road / 2), float(rng.uniform(-0.9, 0.9)) * (z - road / 2))
        add = (_add_tree, _add_tree, _add_fence)[int(rng.integers(3))]
        add(placing, yard, materials, rng)
    for _ in range(60):
        along, aside = float(rng.uniform(-1, 1)), float(rng.choice([-1, 1]))
        outward = float(rng.choice([-1, 1]))
        off = road / 2 + float(rng.uniform(0.5, 1.2))
        spot = (
            (along * x, aside * (z + outward * off)) if rng.random() < 0.5 else (aside * (x + outward * off), along * z)
        )
        parked = road / 2 - 1.1
        kind = int(rng.choice(5, p=[0.28, 0.22, 0.25, 0.15, 0.1]))
        if kind == 0:
            _add_tree(placing, spot, materials, rng)
        elif kind == 1:
            _add_pole(placing, spot, materials, rng)
        elif kind == 2:
            if rng.random() < 0.5:
                _add_car(placing, (along * x, aside * (z + outward * parked)), math.pi / 2, materials, rng)
            else:
                _add_car(placing, (aside * (x + outward * parked), along * z), 0.0, materials, rng)
        elif kind == 3:
            _add_fence(placing, (0.6 * spot[0], 0.6 * spot[1]), materials, rng)
        else:
            _add_rock(placing, spot, 0.5, materials, rng)


def _lay_out_park(placing: Placing, materials: _Materials, rng: np.random.Generator) -> None:
    """Something in the middle, then hills, trees, rocks, huts, fences and ramps around."""
    _add_building(placing, (0.0, 0.0), float(rng.uniform(1.2, 3)), materials, rng)
    pond = plain((0.25, 0.36, 0.42), rng, grain=(0.05, 0.08, 0.1), size=3.0)
    water_x, water_z = (float(value) for value in rng.uniform(-20, 20, size=2))
    placing.add((Solid(Shape.BALL, (water_x, 0.0, water_z), (6.0, 0.03, 4.0)), pond))
    for _ in range(90):
        away, bearing = float(rng.uniform(2, 45)), float(rng.uniform(0, 2 * math.pi))
        spot = (away * math.sin(bearing), away * math.cos(bearing))
        kind = int(rng.choice(7, p=[0.42, 0.2, 0.1, 0.08, 0.08, 0.06, 0.06]))
        if kind == 0:
            _add_tree(placing, spot, materials, rng)
        elif kind == 1:
            _add_rock(placing, spot, float(np.exp(rng.uniform(-1.5, 0.7))), materials, rng)
        elif kind == 2:
            _add_fence(placing, spot, materials, rng)
        elif kind == 3:
            _add_pole(placing, spot, materials, rng)
        elif kind == 4:
            size = float(rng.uniform(2, 9))
            hill = Solid(
                Shape.BALL,
                (spot[0], 0.0, spot[1]),
                (size, size * float(rng.uniform(0.1, 0.3)), size * float(rng.uniform(0.6, 1.4))),
            )
            placing.add(
                (
                    replace(hill, turn_rad=float(rng.uniform(0, 6))),
                    _grass(rng) if rng.random() < 0.2 else materials.rock,
                )
            )
        elif kind == 5:
            _add_building(placing, spot, float(rng.uniform(1, 2.5)), materials, rng)
        else:
            pitch = float(rng.uniform(0.15, 0.5))
            ramp = Solid(Shape.BOX, (spot[0], -0.3, spot[1]), (1.2, 0.1, 2.0), float(rng.uniform(0, 6)), pitch)
            placing.add((ramp, materials.roofs[0]))


def _surround(placing: Placing, materials: _Materials, rng: np.random.Generator) -> None:
    """Hills and towers far around."""
    meadow = _grass(rng)
    for index in range(int(rng.integers(5, 12))):
        bearing, away = index * 0.7 + float(rng.uniform(0, 0.5)), float(rng.uniform(80, 150))
        x, z = away * math.sin(bearing), away * math.cos(bearing)
        if rng.random() < 0.6:
            half = (float(rng.uniform(20, 45)), float(rng.uniform(4, 16)), float(rng.uniform(20, 45)))
            placing.add((Solid(Shape.BALL, (x, 0.0, z), half, bearing), meadow))
        else:
            height = float(rng.uniform(8, 30))
            half = (float(rng.uniform(5, 14)), height, float(rng.uniform(5, 14)))
            placing.add((Solid(Shape.BOX, (x, -height, z), half, bearing), _one(materials.facades, rng)))


def _one(materials: list[Material], rng: np.random.Generator) -> Material:
    return materials[int(rng.integers(len(materials)))]


def _add_block(
    placing: Placing,
    spot: tuple[float, float],
    half: tuple[float, float],
    materials: _Materials,
    rng: np.random.Generator,
) -> None:
    """A building of several storeys, flat or under a roof, with a shop's sign at times."""
    height = float(rng.choice([rng.uniform(3, 7), rng.uniform(6, 24)]))
    x, z = spot
    pieces = [(Solid(Shape.BOX, (x, -height / 2, z), (half[0], height / 2, half[1])), _one(materials.facades, rng))]
    if rng.random() < 0.5:
        pieces += [(solid, _one(materials.roofs, rng)) for solid in _roof(x, z, half, height, rng)]
    if rng.random() < 0.3:
        sign = Solid(Shape.BOX, (x, -min(3.2, height - 0.4), z), (half[0] + 0.15, 0.4, half[1] + 0.15))
        pieces.append((sign, _one(materials.signs, rng)))
    placing.add(*pieces)


def _roof(x: float, z: float, half: tuple[float, float], height: float, rng: np.random.Generator) -> list[Solid]:
    """Two tilted slabs that meet above the middle."""
    tilt = float(rng.uniform(0.3, 0.8))
    across = half[1] / math.cos(tilt)
    rise = 0.5 * half[1] * math.tan(tilt)
    return [
        Solid(
            Shape.BOX,
            (x, -height - rise, z + side * half[1] / 2),
            (half[0] + 0.3, 0.12, across / 2 + 0.2),
            0.0,
            -side * tilt,
        )
        for side in (-1, 1)
    ]


def _add_building(
    placing: Placing, spot: tuple[float, float], size: float, materials: _Materials, rng: np.random.Generator
) -> None:
    """One that stands alone, turned anyhow."""
    height = size * float(rng.uniform(0.8, 1.6))
    half = (size * float(rng.uniform(0.6, 1)), size * float(rng.uniform(0.6, 1)))
    walls = Solid(Shape.BOX, (0.0, -height / 2, 0.0), (half[0], height / 2, half[1]))
    solids = moved([walls, *_roof(0.0, 0.0, half, height, rng)], spot[0], 0.0, spot[1], float(rng.uniform(0, 6)))
    roof = _one(materials.roofs, rng)
    placing.add((solids[0], _one(materials.facades, rng)), (solids[1], roof), (solids[2], roof))


def _add_tree(placing: Placing, spot: tuple[float, float], materials: _Materials, rng: np.random.Generator) -> None:
    x, z = spot
    height = float(np.exp(rng.uniform(np.log(1.5), np.log(11))))
    thick, leaves = height * float(rng.uniform(0.02, 0.04)), _one(materials.leaves, rng)
    pieces = [(Solid(Shape.TAPER, (x, -height * 0.3, z), (thick, height * 0.3, 0.6 * thick)), materials.bark)]
    if rng.random() < 0.3:
        wide = height * float(rng.uniform(0.15, 0.3))
        pieces.append((Solid(Shape.TAPER, (x, -height * 0.6, z), (wide, height * 0.42, 0.0)), leaves))
    else:
        for _ in range(int(rng.integers(1, 4))):
            crown_half = height * rng.uniform(0.13, 0.3, size=3)
            off = height * rng.uniform(-0.13, 0.13, size=3)
            center = (x + float(off[0]), -0.72 * height + float(off[1]), z + float(off[2]))
            crown = Solid(Shape.BALL, center, triple(crown_half), float(rng.uniform(0, 6)))
            pieces.append((replace(crown, pitch_rad=float(rng.uniform(-0.5, 0.5))), leaves))
    if placing.add(*pieces):
        placing.shade(x, 0.0, z, 0.25 * height)


def _add_pole(placing: Placing, spot: tuple[float, float], materials: _Materials, rng: np.random.Generator) -> None:
    """A lamp post or a sign."""
    x, z = spot
    if rng.random() < 0.5:
        height = float(rng.uniform(3, 7))
        arm = Solid(Shape.BOX, (x, -height, z), (0.7, 0.06, 0.12), float(rng.uniform(0, 6)))
        placing.add(
            (Solid(Shape.TAPER, (x, -height / 2, z), (0.09, height / 2, 0.06)), materials.metal), (arm, materials.metal)
        )
        return
    height = float(rng.uniform(1.8, 3))
    board = Solid(Shape.BOX, (x, -height, z), (0.4, 0.3, 0.03), float(rng.uniform(0, 6)))
    placing.add(
        (Solid(Shape.TAPER, (x, -height / 2, z), (0.05, height / 2, 0.05)), materials.metal),
        (board, _one(materials.signs, rng)),
    )


def _add_car(
    placing: Placing, spot: tuple[float, float], turn_rad: float, materials: _Materials, rng: np.random.Generator
) -> None:
    """A body and a cabin, on four wheels that are two long ones."""
    long, high = float(rng.uniform(1.7, 2.4)), float(rng.uniform(0.35, 0.5))
    paint = _one(materials.paints, rng)
    glass = materials.metal
    solids = moved(
        [
            Solid(Shape.BOX, (0.0, -0.3 - high, 0.0), (0.85, high, long)),
            Solid(Shape.BOX, (0.0, -0.3 - 2 * high - 0.25, 0.1 * long), (0.74, 0.28, 0.55 * long)),
            Solid(Shape.BOX, (0.0, -0.3, 0.62 * long), (0.8, 0.3, 0.3)),
            Solid(Shape.BOX, (0.0, -0.3, -0.62 * long), (0.8, 0.3, 0.3)),
        ],
        spot[0],
        0.0,
        spot[1],
        turn_rad + float(rng.normal(0, 0.03)),
    )
    black = materials.bark
    if placing.add((solids[0], paint), (solids[1], glass), (solids[2], black), (solids[3], black)):
        placing.shade(spot[0], 0.0, spot[1], 1.5)


def _add_fence(placing: Placing, spot: tuple[float, float], materials: _Materials, rng: np.random.Generator) -> None:
    length, height = float(rng.uniform(1.5, 6)), float(rng.uniform(0.5, 1.6))
    solid = Solid(
        Shape.BOX,
        (spot[0], -height / 2, spot[1]),
        (length, height / 2, 0.05),
        float(rng.choice([0.0, math.pi / 2, rng.uniform(0, 3)])),
    )
    placing.add((solid, _one([*materials.roofs, *materials.leaves], rng)))


def _add_rock(
    placing: Placing, spot: tuple[float, float], size: float, materials: _Materials, rng: np.random.Generator
) -> None:
    half = size * rng.uniform(0.4, 1, size=3)
    shape = Shape(int(rng.choice([0, 1])))
    angles = [float(value) for value in rng.uniform(-1, 1, size=3)]
    placing.add(
        (
            Solid(shape, (spot[0], -0.3 * size, spot[1]), triple(half), *angles),
            materials.rock,
        )
    )
