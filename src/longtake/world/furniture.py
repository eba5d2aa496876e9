"""Things as a handful of solids each: boxes, balls and tapers, in metres, standing at the origin.

y points down, so what stands on the floor reaches from y = -height to y = 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from jaxtyping import Float

from longtake.world.axis_turns import about_x, about_y, about_z
from longtake.world.things import Kind


class Shape(IntEnum):
    """The solids that rays are cast at."""

    BOX = 0
    """`half` is half its size along its own x, y, z."""
    BALL = 1
    """`half` is its radius, three times; an ellipsoid where the three half axes differ."""
    TAPER = 2
    """A cylinder or cone along its own y: `half` is (radius at its foot, half its height, radius at its top)."""


@dataclass(frozen=True, slots=True)
class Solid:
    """One convex solid: rolled about its own z, pitched about x, then turned about the vertical."""

    shape: Shape
    center: tuple[float, float, float]
    half: tuple[float, float, float]
    turn_rad: float = 0.0
    pitch_rad: float = 0.0
    roll_rad: float = 0.0

    def moved(self, x: float, y: float, z: float, turn_rad: float) -> "Solid":
        """Turned about the origin's vertical, then moved."""
        cos, sin = np.cos(turn_rad), np.sin(turn_rad)
        own_x, own_y, own_z = self.center
        center = (float(cos * own_x + sin * own_z + x), own_y + y, float(-sin * own_x + cos * own_z + z))
        return replace(self, center=center, turn_rad=self.turn_rad + turn_rad)

    @property
    def world_from_own(self) -> Float[np.ndarray, "3 3"]:
        """The rotation of its own axes."""
        return np.asarray(about_y(self.turn_rad) @ about_x(self.pitch_rad) @ about_z(self.roll_rad))


def triple(values: np.ndarray) -> tuple[float, float, float]:
    """Three numbers of an array as solids hold them."""
    first, second, third = (float(value) for value in values)
    return (first, second, third)


def build(kind: Kind, rng: np.random.Generator) -> tuple[Solid, ...]:
    """The parts of a thing, of random size."""
    return _BUILDERS[kind](rng)


def _box(x: float, y: float, z: float, half: tuple[float, float, float]) -> Solid:
    return Solid(Shape.BOX, (x, y, z), half)


def _taper(foot: float, top: float, y_foot: float, y_top: float) -> Solid:
    return Solid(Shape.TAPER, (0.0, (y_foot + y_top) / 2, 0.0), (foot, (y_foot - y_top) / 2, top))


def _plain_box(rng: np.random.Generator) -> tuple[Solid, ...]:
    x, y, z = (float(value) for value in rng.uniform([0.22, 0.2, 0.22], [0.45, 0.5, 0.45]))
    return (_box(0.0, -y, 0.0, (x, y, z)),)


def _ball(rng: np.random.Generator) -> tuple[Solid, ...]:
    radius = float(rng.uniform(0.22, 0.42))
    return (Solid(Shape.BALL, (0.0, -radius, 0.0), (radius, radius, radius)),)


def _cylinder(rng: np.random.Generator) -> tuple[Solid, ...]:
    radius, height = float(rng.uniform(0.18, 0.34)), float(rng.uniform(0.6, 1.2))
    return (_taper(radius, radius, 0.0, -height),)


def _cone(rng: np.random.Generator) -> tuple[Solid, ...]:
    radius, height = float(rng.uniform(0.26, 0.42)), float(rng.uniform(0.7, 1.2))
    return (_taper(radius, 0.0, 0.0, -height),)


def _table(rng: np.random.Generator) -> tuple[Solid, ...]:
    x, z, height = (float(value) for value in rng.uniform([0.45, 0.32, 0.68], [0.75, 0.45, 0.8]))
    leg = 0.035
    legs = [
        _box(side * (x - leg), -height / 2, front * (z - leg), (leg, height / 2, leg))
        for side in (-1, 1)
        for front in (-1, 1)
    ]
    return (_box(0.0, -height, 0.0, (x, 0.03, z)), *legs)


def _chair(rng: np.random.Generator) -> tuple[Solid, ...]:
    half, seat, back = (float(value) for value in rng.uniform([0.2, 0.42, 0.4], [0.25, 0.5, 0.55]))
    leg = 0.025
    legs = [
        _box(side * (half - leg), -seat / 2, front * (half - leg), (leg, seat / 2, leg))
        for side in (-1, 1)
        for front in (-1, 1)
    ]
    return (
        _box(0.0, -seat, 0.0, (half, 0.03, half)),
        _box(0.0, -seat - back / 2, half - 0.03, (half, back / 2, 0.03)),
        *legs,
    )


def _shelf(rng: np.random.Generator) -> tuple[Solid, ...]:
    x, z, height = (float(value) for value in rng.uniform([0.4, 0.14, 1.3], [0.6, 0.2, 1.9]))
    sides = [_box(side * (x - 0.02), -height / 2, 0.0, (0.02, height / 2, z)) for side in (-1, 1)]
    num_boards = 4
    boards = [_box(0.0, -0.04 - (height - 0.06) * i / (num_boards - 1), 0.0, (x, 0.02, z)) for i in range(num_boards)]
    return (_box(0.0, -height / 2, z - 0.01, (x, height / 2, 0.01)), *sides, *boards)


def _lamp(rng: np.random.Generator) -> tuple[Solid, ...]:
    height, shade = float(rng.uniform(1.3, 1.7)), float(rng.uniform(0.2, 0.28))
    return (
        _taper(0.16, 0.14, 0.0, -0.05),
        _taper(0.025, 0.025, -0.05, -height),
        _taper(shade, shade * 0.6, 0.3 - height, -height),
    )


_BUILDERS: dict[Kind, Callable[[np.random.Generator], tuple[Solid, ...]]] = {
    Kind.BOX: _plain_box,
    Kind.BALL: _ball,
    Kind.CYLINDER: _cylinder,
    Kind.CONE: _cone,
    Kind.TABLE: _table,
    Kind.CHAIR: _chair,
    Kind.SHELF: _shelf,
    Kind.LAMP: _lamp,
}
