"""Objects before nothing: one thing or a few, built of solids, before an even background, as models are shown."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from longtake.world.content import Room, Surroundings, World
from longtake.world.furniture import Shape, Solid, triple
from longtake.world.materials import Material, plain, random_material, random_tone
from longtake.world.placing import Placing, moved
from longtake.world.tracks import Motion, Track, any_motion, ring

_MOTIONS = {Motion.ORBIT: 0.8, Motion.FLY: 0.2}
_REACH = 60.0
"""In sizes of what is shown; what is farther has no depth."""
_TRIES = 8
_THIN = 0.03
_SHRINKING = 0.8


def build_objects(seed: int, rng: np.random.Generator) -> World:
    """What is shown for this seed: within `size` of the middle."""
    size = float(np.exp(rng.uniform(np.log(0.1), np.log(10))))
    materials = _materials(size, rng)
    has_ground = bool(rng.random() < 0.35)
    largest, *others = _groups(size, stands=has_ground or bool(rng.random() < 0.5), rng=rng)
    track = _track(size, _middle(largest), rng)
    placing = Placing(track)
    while not placing.add(*_coated(largest, materials, rng)):
        largest = _shrunk(largest)
    for group in others:
        placing.add(*_coated(group, materials, rng))
    ground = materials[0] if rng.random() < 0.3 else plain(random_tone(rng), rng)
    return World(
        seed=seed,
        height=math.inf,
        rooms=(Room.open_ground(size, ground),),
        things=(),
        parts=placing.parts,
        surroundings=_light(0.0 if has_ground else math.inf, size, rng),
        track=track,
    )


def _middle(solids: Sequence[Solid]) -> Float[np.ndarray, "3"]:
    """Of the box around the solids' own middles."""
    centers = np.array([solid.center for solid in solids])
    return np.asarray((centers.min(axis=0) + centers.max(axis=0)) / 2)


def _shrunk(solids: Sequence[Solid]) -> tuple[Solid, ...]:
    """A little smaller, about their middle; what stood hovers then."""
    middle = _middle(solids)
    return tuple(
        replace(
            solid,
            center=triple(middle + _SHRINKING * (np.array(solid.center) - middle)),
            half=triple(_SHRINKING * np.array(solid.half)),
        )
        for solid in solids
    )


def _coated(
    solids: Sequence[Solid], materials: Sequence[Material], rng: np.random.Generator
) -> list[tuple[Solid, Material]]:
    """Most of a thing in one coat, the rest in another."""
    first, second = (materials[int(rng.integers(len(materials)))] for _ in range(2))
    return [(solid, first if rng.random() < 0.8 else second) for solid in solids]


def _track(size: float, middle: Float[np.ndarray, "3"], rng: np.random.Generator) -> Track:
    """Around the largest thing, near or far, level with it or above."""
    motion = any_motion(_MOTIONS, rng)
    nearest = size * float(np.exp(rng.uniform(np.log(1.15), np.log(2.0))))
    lowest = size * float(rng.uniform(-0.1, 0.8))
    radius = (nearest, nearest * float(rng.uniform(1.02, 1.6)))
    points = ring(triple(middle), radius, (lowest, lowest + size * float(rng.uniform(0.1, 0.9))), rng)
    focus = triple(middle + size * rng.uniform(-0.15, 0.15, size=3))
    return Track(motion=motion, points=points, is_closed=True, clearance=0.05 * size, focus=focus)


def _materials(size: float, rng: np.random.Generator) -> list[Material]:
    """Coats without a pattern, as models often have, and others; of some worlds all in one tone."""
    plainness = float(rng.choice([0.2, 0.5, 0.9]))
    tone = random_tone(rng) if rng.random() < 0.3 else None
    return [
        plain(tone or random_tone(rng), rng, grain=triple(rng.uniform(0, 0.03, size=3)), size=size)
        if rng.random() < plainness
        else random_material(rng, 0.8 * size, tone)
        for _ in range(int(rng.integers(3, 12)))
    ]


def _light(ground: float, size: float, rng: np.random.Generator) -> Surroundings:
    """From one side and from everywhere, before a tone that is even or grows lighter upwards."""
    bearing, height = float(rng.uniform(0, 2 * math.pi)), float(rng.uniform(0.1, 1.4))
    horizon = np.array(random_tone(rng))
    zenith = horizon if rng.random() < 0.7 else np.array(random_tone(rng))
    sun = float(rng.uniform(0.15, 0.8))
    ambient = float(rng.uniform(0.3, 0.7))
    return Surroundings(
        ground=ground,
        reach=_REACH * size,
        zenith=triple(zenith),
        horizon=triple(horizon),
        to_sun=(math.cos(height) * math.sin(bearing), -math.sin(height), math.cos(height) * math.cos(bearing)),
        sun=(sun, sun, sun),
        ambient=(ambient, ambient, ambient),
        haze=triple(horizon),
        exposure=float(rng.uniform(0.85, 1.3)),
    )


def _groups(size: float, *, stands: bool, rng: np.random.Generator) -> list[tuple[Solid, ...]]:
    """Things beside each other, or one in the middle; each stands on the ground or hangs anywhere."""
    count = int(rng.choice([1, 2, 3, 5, 9]))
    placed: list[tuple[float, float, float]] = []
    groups = []
    for number in range(count):
        half = size * float(rng.uniform(0.6, 0.95) if number == 0 else rng.uniform(0.25, 0.7)) * count**-0.25
        solids = _BUILDERS[int(rng.integers(len(_BUILDERS) - (count == 1)))](half, rng)
        for _ in range(_TRIES):
            away, bearing = (size - half) * math.sqrt(rng.uniform(0, 1)) * (count > 1), rng.uniform(0, 2 * math.pi)
            x, z = float(away * math.sin(bearing)), float(away * math.cos(bearing))
            if all(math.hypot(x - at_x, z - at_z) > 0.8 * (half + other) for at_x, at_z, other in placed):
                break
        up = 0.0 if stands else -float(rng.uniform(0, 1.2 * (size - half)))
        groups.append(moved(solids, x, up, z, float(rng.uniform(0, 2 * math.pi))))
        placed.append((x, z, half))
    return groups


def _shell(half: float, rng: np.random.Generator) -> list[Solid]:
    """Thin walls around nothing, some of them missing, with panels before them."""
    x, y, z = (half * float(value) for value in rng.uniform(0.4, 1, size=3))
    thin = _THIN * half
    sides = [
        Solid(Shape.BOX, (-x, -y, 0.0), (thin, y, z)),
        Solid(Shape.BOX, (x, -y, 0.0), (thin, y, z)),
        Solid(Shape.BOX, (0.0, -y, -z), (x, y, thin)),
        Solid(Shape.BOX, (0.0, -y, z), (x, y, thin)),
        Solid(Shape.BOX, (0.0, -thin, 0.0), (x, thin, z)),
        Solid(Shape.BOX, (0.0, -2 * y, 0.0), (x, thin, z)),
    ]
    left = [side for side in sides if rng.random() < 0.8] or sides[:1]
    for _ in range(int(rng.integers(0, 6))):
        wide, high = (float(value) for value in rng.uniform(0.06, 0.3, size=2) * (x + y))
        at_x, at_y = float(rng.uniform(-0.7, 0.7)) * x, -float(rng.uniform(0.1, 0.9)) * 2 * y
        front = float(rng.choice([-1, 1]))
        left.append(Solid(Shape.BOX, (at_x, at_y, front * (z + thin)), (0.5 * wide, 0.5 * high, thin)))
    return left


def _tower(half: float, rng: np.random.Generator) -> list[Solid]:
    """Boxes, drums and cones on top of each other, each with something at its side now and then."""
    solids, top, wide = list[Solid](), 0.0, half * float(rng.uniform(0.4, 0.9))
    while -top < 1.6 * half and len(solids) < 14:
        shape = Shape(int(rng.choice([0, 0, 2])))
        high = half * float(rng.uniform(0.1, 0.5))
        deep = wide if shape is Shape.TAPER else wide * float(rng.uniform(0.5, 1))
        if shape is Shape.TAPER:
            deep *= float(rng.choice([1.0, rng.uniform(0, 1)]))
        solids.append(Solid(shape, (0.0, top - high, 0.0), (wide, high, deep), float(rng.normal(0, 0.2))))
        if rng.random() < 0.4:
            small = triple(half * rng.uniform(0.05, 0.3, size=3))
            bearing = float(rng.uniform(0, 2 * math.pi))
            solids.append(Solid(Shape.BOX, (wide * math.sin(bearing), top - high, wide * math.cos(bearing)), small))
        top -= 2 * high
        wide *= float(rng.uniform(0.6, 1.05))
    return solids


def _heap(half: float, rng: np.random.Generator) -> list[Solid]:
    """Solids of any shape and direction, grown together."""
    solids = []
    for _ in range(int(rng.integers(3, 28))):
        middle = half * rng.uniform([-0.7, -1.6, -0.7], [0.7, -0.2, 0.7])
        sides = half * np.exp(rng.uniform(np.log(0.06), np.log(0.45), size=3))
        angles = (float(value) for value in rng.uniform(-3, 3, size=3))
        solids.append(Solid(Shape(int(rng.choice(3, p=[0.6, 0.2, 0.2]))), triple(middle), triple(sides), *angles))
    return solids


def _block(half: float, rng: np.random.Generator) -> list[Solid]:
    """One box, ball or drum, lying as it fell."""
    x, y, z = (float(value) for value in half * rng.uniform(0.4, 1, size=3))
    shape = Shape(int(rng.choice(3, p=[0.7, 0.15, 0.15])))
    solid = Solid(shape, (0.0, -y, 0.0), (x, y, x if shape is Shape.BALL else z))
    return [replace(solid, pitch_rad=float(rng.normal(0, 0.3))) if rng.random() < 0.3 else solid]


_BUILDERS: tuple[Callable[[float, np.random.Generator], list[Solid]], ...] = (_shell, _tower, _heap, _block)
"""The last is too little to be shown alone."""
