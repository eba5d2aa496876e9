"""Where a camera goes in a world that is no house: a way that is clear of all solids, and how it is travelled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float

from longtake.world.distance import distance_to, reach_of
from longtake.world.furniture import Solid

_CLOSE_CORNERS = 3
"""Rounds of cutting corners that make a smooth way of a polygon."""


class Motion(StrEnum):
    """How a camera moves."""

    WALK = "walk"
    HANDHELD = "handheld"
    DRIVE = "drive"
    FLY = "fly"
    ORBIT = "orbit"
    STILL = "still"
    TURN = "turn"


def any_motion(shares: Mapping[Motion, float], rng: np.random.Generator) -> Motion:
    """One of these, by their shares, which sum to 1."""
    return Motion(rng.choice([motion.value for motion in shares], p=list(shares.values())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A way through a world, travelled round after round, or to and fro."""

    motion: Motion
    points: tuple[tuple[float, float, float], ...]
    """Its corners, close together; STILL and TURN stay at the first."""
    is_closed: bool
    clearance: float
    """What every solid keeps from all points of the way, in metres."""
    focus: tuple[float, float, float] | None = None
    """What the camera looks at; None for the way ahead."""
    least_down_rad: float = -np.pi
    """How far below level the camera looks at least, so that it does not look into an empty sky."""

    def __post_init__(self) -> None:
        assert len(self.points) > 1

    def dense(self, spacing: float) -> Float[np.ndarray, "points 3"]:
        """Points along the whole way, at most this far apart."""
        corners = np.array([*self.points, self.points[0]] if self.is_closed else self.points)
        lengths = np.linalg.norm(np.diff(corners, axis=0), axis=1)
        along = np.concatenate([[0.0], np.cumsum(lengths)])
        at = np.linspace(0, along[-1], int(np.ceil(along[-1] / spacing)) + 1)
        return np.stack([np.interp(at, along, corners[:, axis]) for axis in range(3)], axis=1)

    def keeps_clear_of(self, solids: Sequence[Solid]) -> bool:
        """Whether the whole way is at least `clearance` from all of them."""
        points = self.dense(self.clearance)
        margin = self.clearance * 1.5  # a point of the way is half a spacing from the next dense one at most
        near = [
            solid
            for solid in solids
            if (np.linalg.norm(points - np.array(solid.center), axis=1) < margin + reach_of(solid)).any()
        ]
        return not near or bool((distance_to(points, near) >= margin).all())


def rounded(
    corners: Float[np.ndarray, "corners 3"], *, is_closed: bool, rounds: int = _CLOSE_CORNERS
) -> tuple[tuple[float, float, float], ...]:
    """A smooth way along a polygon, inside its corners (Chaikin's cutting of corners)."""
    for _ in range(rounds):
        after = np.roll(corners, -1, axis=0) if is_closed else corners[1:]
        before = corners if is_closed else corners[:-1]
        cut = np.stack([0.75 * before + 0.25 * after, 0.25 * before + 0.75 * after], axis=1).reshape(-1, 3)
        corners = cut if is_closed else np.concatenate([corners[:1], cut, corners[-1:]])
    return tuple((float(x), float(y), float(z)) for x, y, z in corners)


def ring(
    center: tuple[float, float, float],
    radius: tuple[float, float],
    height: tuple[float, float],
    rng: np.random.Generator,
    *,
    num_corners: int = 12,
) -> tuple[tuple[float, float, float], ...]:
    """A round way around a point whose radius and height above it change between two bounds each."""
    turn = rng.uniform(0, 2 * np.pi) + np.arange(num_corners) / num_corners * 2 * np.pi * rng.choice([-1, 1])
    wave = 0.5 + 0.5 * np.sin(turn * rng.integers(1, 4) + rng.uniform(0, 6))
    rise = 0.5 + 0.5 * np.sin(turn * rng.integers(1, 4) + rng.uniform(0, 6))
    away, above = radius[0] + (radius[1] - radius[0]) * wave, height[0] + (height[1] - height[0]) * rise
    corners = np.stack([center[0] + away * np.sin(turn), center[1] - above, center[2] + away * np.cos(turn)], axis=1)
    return rounded(corners, is_closed=True)
