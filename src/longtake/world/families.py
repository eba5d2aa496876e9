"""Families of worlds, each drawn at random by a seed: houses, and what is to be seen beside them."""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

import numpy as np

from longtake.errors import SettingError
from longtake.world.clutter import build_clutter
from longtake.world.content import World
from longtake.world.corridors import build_corridors
from longtake.world.house import House, build_house
from longtake.world.objects import build_objects
from longtake.world.outdoors import build_outdoors
from longtake.world.rooms import build_rooms, eye_height
from longtake.world.routes import slowed, travel
from longtake.world.scene import SceneSize
from longtake.world.table import build_table
from longtake.world.walk import Footstep, stroll, walk


class Family(StrEnum):
    """What kind of world a seed stands for."""

    HOUSE = "house"
    ROOMS = "rooms"
    CLUTTER = "clutter"
    OUTDOORS = "outdoors"
    CORRIDORS = "corridors"
    TABLE = "table"
    OBJECTS = "objects"


HELD_OUT = Family.TABLE
"""Never used for training."""
_NUMBERS = {family: 100 + number for number, family in enumerate(Family)}
"""Never change, or the same seed would give other worlds; houses take the numbers below."""
ANY_SIZE = SceneSize(boxes=220, balls=72, tapers=60, rooms=6, things=24, materials=72, varied=True)
"""Holds any world of any family but houses, and all houses but one in many hundreds."""
_FIELDS_OF_VIEW_DEG = (35.0, 100.0)
_HOUSE_FIELDS_OF_VIEW_DEG = (65.0, 85.0)
_WALKING_VIEW_DEG = 85.0


def family_named(name: str) -> Family:
    """The family of that name."""
    if name not in set(Family):
        raise SettingError(f"There is no family of worlds '{name}'; choose {', '.join(Family)}.")
    return Family(name)


def families_named(names: Iterable[str]) -> tuple[Family, ...]:
    """Those of these names, each once, `all` for every one; the one that is held out of training comes first."""
    asked = [family for name in names for family in (Family if name == "all" else (family_named(name),))]
    return tuple(dict.fromkeys(sorted(asked, key=lambda family: family is not HELD_OUT)))


def build_world(family: Family, seed: int) -> World:
    """The world of this family and seed."""
    if family is Family.HOUSE:
        return build_house(seed)
    if seed < 0:
        raise SettingError(f"Expected a world's seed as a whole number from 0, but got {seed}.")
    return _BUILDERS[family](seed, _rng(family, seed, 0))


def route(family: Family, world: World, walk_number: int = 0) -> Iterator[Footstep]:
    """The camera's poses in a world, frame by frame, without an end; another number goes another way through it."""
    rng = _rng(family, world.seed, 1, walk_number)
    if family is Family.HOUSE:
        assert isinstance(world, House)
        return walk(world, world.seed, walk_number)
    if world.track is None:
        assert isinstance(world, House)
        # a walk is made for a usual lens; through a narrow one the same steps would be leaps
        narrow = np.tan(field_of_view_rad(family, world.seed) / 2) / np.tan(np.radians(_WALKING_VIEW_DEG) / 2)
        return slowed(stroll(world, rng, eye_height(world, rng)), min(1.0, float(narrow)))
    return travel(world, field_of_view_rad(family, world.seed), rng)


def field_of_view_rad(family: Family, seed: int) -> float:
    """Along the longer side of the image: 65 to 85 degrees in houses, else 35 to 100."""
    if family is Family.HOUSE:
        return float(np.radians(np.random.default_rng([seed, 2]).uniform(*_HOUSE_FIELDS_OF_VIEW_DEG)))
    return float(np.radians(_rng(family, seed, 2).uniform(*_FIELDS_OF_VIEW_DEG)))


def _rng(family: Family, seed: int, purpose: int, walk_number: int = 0) -> np.random.Generator:
    return np.random.default_rng([seed, _NUMBERS[family], purpose, *([walk_number] if walk_number else [])])


_BUILDERS: dict[Family, Callable[[int, np.random.Generator], World]] = {
    Family.ROOMS: build_rooms,
    Family.CLUTTER: build_clutter,
    Family.OUTDOORS: build_outdoors,
    Family.CORRIDORS: build_corridors,
    Family.TABLE: build_table,
    Family.OBJECTS: build_objects,
}
