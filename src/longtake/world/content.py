"""What a world holds: solids with their materials, rooms, named things, and what lies around them."""

import math
from dataclasses import astuple, dataclass

from longtake.world.furniture import Shape, Solid
from longtake.world.materials import Material
from longtake.world.plan import Rectangle
from longtake.world.things import Colour, Thing
from longtake.world.tracks import Track

Rgb = tuple[float, float, float]
_BLACK: Rgb = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Part:
    """A solid of the world, what it is made of, and which thing it belongs to."""

    solid: Solid
    material: Material | None
    """None for walls: their paper is that of the room they face."""
    thing: int | None = None
    own_pattern: bool = False
    """Whether it carries its pattern along, as things do; else all solids share one that runs through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """One room: its place, the colour of its walls, its surfaces and its lamp."""

    area: Rectangle
    colour: Colour
    walls: Material
    floor: Material
    ceiling: Material
    light: Rgb
    """Brightness of its lamp in red, green and blue."""

    @classmethod
    def open_ground(cls, half: float, ground: Material) -> "Room":
        """Of a world without walls and lamps, so far from its middle each way."""
        return cls(
            area=Rectangle((-half, -half), (half, half)),
            colour=Colour.WHITE,
            walls=ground,
            floor=ground,
            ceiling=ground,
            light=_BLACK,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Ground, sky, sun and air; by itself what a house has: a floor, no way to the sky, clear air, only lamps."""

    ground: float = 0.0
    """y of the ground; infinite where there is none."""
    reach: float = math.inf
    """What is farther than this, in depth, is sky."""
    zenith: Rgb = _BLACK
    horizon: Rgb = _BLACK
    clouds: float = 0.0
    """How much of the sky they cover, 0 to 1."""
    to_sun: tuple[float, float, float] = (0.0, -1.0, 0.0)
    """Direction of length 1."""
    sun: Rgb = _BLACK
    ambient: Rgb = _BLACK
    """Light from everywhere, mostly from above."""
    haze: Rgb = _BLACK
    haze_density: float = 0.0
    """Per metre."""
    exposure: float = 1.0

    def row(self) -> tuple[float, ...]:
        """All numbers, in the order of the fields."""
        return tuple(number for value in astuple(self) for number in (value if isinstance(value, tuple) else (value,)))


INDOORS = Surroundings()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything there is to see."""

    seed: int
    height: float
    """From floor to ceiling; infinite where there is no ceiling."""
    rooms: tuple[Room, ...]
    """One at least; a world without rooms has one for its ground and its light."""
    things: tuple[Thing, ...]
    parts: tuple[Part, ...]
    surroundings: Surroundings = INDOORS
    shadows: tuple[tuple[float, float, float, float], ...] = ()
    """Soft darkness around what stands about, where it is no thing: x, y, z and reach."""
    track: Track | None = None
    """Where a camera goes; None in a house, which is walked through."""

    @property
    def farthest(self) -> float:
        """No depth is greater."""
        if math.isfinite(self.surroundings.reach):
            return self.surroundings.reach
        return 2 * max(math.hypot(*part.solid.center) + math.hypot(*part.solid.half) for part in self.parts)

    @property
    def is_varied(self) -> bool:
        """Whether anything goes beyond what houses have, so that more has to be computed for each ray."""
        return (
            self.surroundings != INDOORS
            or bool(self.shadows)
            or math.isinf(self.height)
            or any(part.own_pattern or _is_unusual(part.solid) for part in self.parts)
            or any(material.is_decorated for material in self._materials())
        )

    def _materials(self) -> list[Material]:
        of_rooms = [one for room in self.rooms for one in (room.walls, room.floor, room.ceiling)]
        return [*of_rooms, *(part.material for part in self.parts if part.material is not None)]


def _is_unusual(solid: Solid) -> bool:
    """Tilted, or a ball that is not round."""
    is_tilted = solid.pitch_rad != 0 or solid.roll_rad != 0
    return is_tilted or (solid.shape is Shape.BALL and len(set(solid.half)) > 1)
