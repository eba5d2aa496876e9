"""Placing parts in a world beside a camera's way, as long as there is room for them in a scene."""

from collections.abc import Sequence

from longtake.world.content import Part
from longtake.world.furniture import Shape, Solid
from longtake.world.materials import Material
from longtake.world.tracks import Track

MOST_OF_SHAPE = {Shape.BOX: 220, Shape.BALL: 72, Shape.TAPER: 60}
"""What one world of any family holds at most, but for houses."""
MOST_SHADOWS = 24


class Placing:
    """Parts so far; what would stand in the camera's way, or would be too much, is left out."""

    def __init__(self, track: Track | None) -> None:
        self._track = track
        self._left = dict(MOST_OF_SHAPE)
        self._parts: list[Part] = []
        self._shadows: list[tuple[float, float, float, float]] = []

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(self._parts)

    @property
    def shadows(self) -> tuple[tuple[float, float, float, float], ...]:
        return tuple(self._shadows)

    def add(self, *pieces: tuple[Solid, Material | None], own_pattern: bool = True) -> bool:
        """All solids of one thing with their materials, or none of them; says whether they were placed."""
        solids = [solid for solid, _ in pieces]
        if any(sum(solid.shape is shape for solid in solids) > left for shape, left in self._left.items()):
            return False
        if self._track is not None and not self._track.keeps_clear_of(solids):
            return False
        for solid, material in pieces:
            self._left[solid.shape] -= 1
            self._parts.append(Part(solid, material, own_pattern=own_pattern))
        return True

    def shade(self, x: float, y: float, z: float, reach: float) -> None:
        """Soft darkness around what stands there, as long as there is room for it."""
        if len(self._shadows) < MOST_SHADOWS:
            self._shadows.append((x, y, z, reach))


def moved(solids: Sequence[Solid], x: float, y: float, z: float, turn_rad: float) -> tuple[Solid, ...]:
    """Solids of one thing, turned about the origin's vertical, then moved."""
    return tuple(solid.moved(x, y, z, turn_rad) for solid in solids)
