"""Floor plans: a rectangle split into rooms that share walls, and doors that join them all.

Lengths in metres. The plan lies in x (right) and z (forward), seen from above; y points down and plays no part here.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

SMALLEST_SIDE = 2.7
DOOR_MARGIN = 0.45
"""From a door's side to the end of its wall."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Part of the plan: from `low` to `high`, each as x, z."""

    low: tuple[float, float]
    high: tuple[float, float]

    @property
    def size(self) -> tuple[float, float]:
        return (self.high[0] - self.low[0], self.high[1] - self.low[1])

    @property
    def center(self) -> tuple[float, float]:
        return ((self.low[0] + self.high[0]) / 2, (self.low[1] + self.high[1]) / 2)


@dataclass(frozen=True, slots=True)
class Wall:
    """A straight wall of the plan: at `at` on one axis (0 for x, 1 for z), from `start` to `stop` along the other."""

    axis: int
    at: float
    start: float
    stop: float
    rooms: tuple[int, int] | None
    """The two rooms it parts; an outer wall parts none."""


@dataclass(frozen=True, slots=True)
class Door:
    """An opening in a wall."""

    wall: Wall
    middle: float
    """Along the wall."""
    width: float
    height: float

    @property
    def position(self) -> tuple[float, float]:
        """Its middle as x, z."""
        return (self.wall.at, self.middle) if self.wall.axis == 0 else (self.middle, self.wall.at)


@dataclass(frozen=True, slots=True)
class Plan:
    """Rooms, the walls around and between them, and the doors."""

    footprint: Rectangle
    rooms: tuple[Rectangle, ...]
    walls: tuple[Wall, ...]
    doors: tuple[Door, ...]


def draw_plan(rng: np.random.Generator) -> Plan:
    """A house of three to six rooms, all of which can be reached."""
    while True:
        plan = _draw_any_plan(rng)
        if _num_groups(plan) == 1:
            return plan


def _draw_any_plan(rng: np.random.Generator) -> Plan:
    footprint = Rectangle((0.0, 0.0), (float(rng.uniform(7.0, 11.5)), float(rng.uniform(6.0, 9.5))))
    rooms = _split(footprint, int(rng.integers(3, 7)), rng)
    inner = [wall for i in range(len(rooms)) for j in range(i + 1, len(rooms)) for wall in _shared(rooms, i, j)]
    doors = _open_doors(inner, len(rooms), rng)
    return Plan(footprint, tuple(rooms), (*_around(footprint), *inner), tuple(doors))


def _num_groups(plan: Plan) -> int:
    """Sets of rooms between which there is no way."""
    group = list(range(len(plan.rooms)))
    for door in plan.doors:
        group = _joined(group, door.wall)
    return len(set(group))


def _joined(group: list[int], wall: Wall) -> list[int]:
    """Groups of rooms after a door in this wall."""
    assert wall.rooms is not None
    one, other = (group[room] for room in wall.rooms)
    return [one if member == other else member for member in group]


def _split(footprint: Rectangle, num_rooms: int, rng: np.random.Generator) -> list[Rectangle]:
    """The largest room is cut across its longer side, until there are enough or none can be cut."""
    rooms = [footprint]
    while len(rooms) < num_rooms:
        largest = max(range(len(rooms)), key=lambda i: rooms[i].size[0] * rooms[i].size[1])
        room = rooms[largest]
        axis = 0 if room.size[0] >= room.size[1] else 1
        if room.size[axis] < 2 * SMALLEST_SIDE:
            break
        cut = room.low[axis] + float(rng.uniform(SMALLEST_SIDE, room.size[axis] - SMALLEST_SIDE))
        ends = (room.low[axis], cut, room.high[axis])
        rooms[largest : largest + 1] = [_between(room, axis, start, stop) for start, stop in pairwise(ends)]
    return rooms


def _between(room: Rectangle, axis: int, start: float, stop: float) -> Rectangle:
    if axis == 0:
        return Rectangle((start, room.low[1]), (stop, room.high[1]))
    return Rectangle((room.low[0], start), (room.high[0], stop))


def _shared(rooms: list[Rectangle], i: int, j: int) -> list[Wall]:
    """The wall between two rooms, if they touch along more than a corner."""
    a, b = rooms[i], rooms[j]
    for axis in (0, 1):
        along = 1 - axis
        start, stop = max(a.low[along], b.low[along]), min(a.high[along], b.high[along])
        if stop > start:
            for at in {a.high[axis], a.low[axis]} & {b.low[axis], b.high[axis]}:
                return [Wall(axis, at, start, stop, (i, j))]
    return []


def _around(footprint: Rectangle) -> list[Wall]:
    return [
        Wall(axis, at, footprint.low[1 - axis], footprint.high[1 - axis], None)
        for axis in (0, 1)
        for at in (footprint.low[axis], footprint.high[axis])
    ]


def _open_doors(inner: list[Wall], num_rooms: int, rng: np.random.Generator) -> list[Door]:
    """Doors in random walls until every room is joined, and a few more so that there are round ways."""
    group = list(range(num_rooms))
    doors = []
    for index in rng.permutation(len(inner)):
        wall = inner[index]
        width, height = float(rng.uniform(0.95, 1.25)), float(rng.uniform(2.0, 2.15))
        more = rng.random() < 0.4
        room_for_it = wall.stop - wall.start - 2 * DOOR_MARGIN - width
        if room_for_it < 0 or (_joined(group, wall) == group and not more):
            continue
        middle = wall.start + DOOR_MARGIN + width / 2 + float(rng.uniform(0, 1)) * room_for_it
        doors.append(Door(wall, middle, width, height))
        group = _joined(group, wall)
    return doors
