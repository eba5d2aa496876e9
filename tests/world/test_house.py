import math
from functools import cache

import numpy as np
import pytest

from longtake.errors import SettingError
from longtake.world.furniture import Shape, Solid, build
from longtake.world.house import House, build_house
from longtake.world.occupancy import CELL, steps_to
from longtake.world.plan import SMALLEST_SIDE
from longtake.world.things import Kind

SEEDS = range(30)
built = cache(build_house)


@pytest.fixture(params=SEEDS)
def house(request: pytest.FixtureRequest) -> House:
    return built(request.param)


def test_rooms_tile_the_footprint(house: House) -> None:
    width, depth = house.plan.footprint.size
    assert sum(math.prod(room.size) for room in house.plan.rooms) == pytest.approx(width * depth)
    assert all(min(room.size) >= SMALLEST_SIDE - 1e-9 for room in house.plan.rooms)
    rng = np.random.default_rng(house.seed)
    for point in rng.uniform(0, [width, depth], size=(50, 2)):
        inside = [room for room in house.plan.rooms if all(room.low <= point) and all(point < room.high)]
        assert len(inside) == 1


def test_every_room_can_be_reached_on_foot(house: House) -> None:
    walkable = house.occupancy.walkable
    start = tuple(int(index) for index in np.argwhere(walkable)[0])
    assert (steps_to(walkable, (start[0], start[1]))[walkable] >= 0).all()
    for room in house.rooms:
        (left, near), (right, far) = (np.array(corner) / CELL for corner in (room.area.low, room.area.high))
        assert walkable[int(near) : int(far), int(left) : int(right)].any()


def test_names_are_unique_and_things_stand_in_their_rooms(house: House) -> None:
    names = [thing.name for thing in house.things]
    assert len(names) == len(set(names)) >= 4
    colours = [room.colour for room in house.rooms]
    assert len(colours) == len(set(colours)) == len(house.plan.rooms)
    for part in house.parts:
        if part.thing is not None:
            area = house.rooms[house.things[part.thing].room].area
            x, _, z = part.solid.center
            assert area.low[0] < x < area.high[0]
            assert area.low[1] < z < area.high[1]


def test_the_same_seed_gives_the_same_house_and_another_seed_another() -> None:
    assert build_house(5).parts == build_house(5).parts
    assert build_house(5).parts != build_house(6).parts


def test_houses_differ_in_rooms_and_hold_every_kind_of_thing() -> None:
    assert {len(built(seed).rooms) for seed in SEEDS} == {3, 4, 5, 6}
    assert {thing.kind for seed in SEEDS for thing in built(seed).things} == set(Kind)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(SettingError, match="from 0, but got -1"):
        build_house(-1)


@pytest.mark.parametrize("kind", Kind)
def test_what_is_built_stands_on_the_floor(kind: Kind) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        solids = build(kind, rng)
        lowest = max(solid.center[1] + solid.half[1] for solid in solids)
        assert lowest == pytest.approx(0, abs=0.03)
        assert all(min(solid.half) > 0 or solid.shape is Shape.TAPER for solid in solids)


def test_a_solid_moves_with_its_thing() -> None:
    solid = Solid(Shape.BOX, (1.0, -0.5, 0.0), (0.1, 0.5, 0.2))
    moved = solid.moved(2.0, 0.0, 3.0, math.pi / 2)
    assert moved.center == pytest.approx((2.0, -0.5, 2.0))
    assert moved.turn_rad == pytest.approx(math.pi / 2)
