"""Where a camera can go: a grid over the plan, marked where walls and furniture stand.

Cells are squares of `CELL` metres; row is along z, column along x. Heights play no part: what stands on the floor is
in the way, what hangs above a door is not.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from longtake.world.furniture import Solid
from longtake.world.plan import Plan

CELL = 0.1
CLEARANCE = 0.32
"""How far a camera keeps from what stands about."""
_SPACE = 0.35
DOORWAY = 0.75
"""How far around a door's middle nothing may stand."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Cells that are taken, cells that must stay free, and cells where a camera may be."""

    taken: Bool[np.ndarray, "rows columns"]
    doorway: Bool[np.ndarray, "rows columns"]
    doors: tuple[tuple[int, int], ...]
    """The cell in the middle of each door."""
    walkable: Bool[np.ndarray, "rows columns"]
    """At a distance from all that is taken, and with a way to the first door."""

    @classmethod
    def of_plan(cls, plan: Plan, wall_half: float) -> "Occupancy":
        """Walls with their doors open."""
        columns, rows = (int(np.ceil(side / CELL)) for side in plan.footprint.size)
        x, z = _middles(columns), _middles(rows)
        taken = np.zeros((rows, columns), dtype=bool)
        for wall in plan.walls:
            across, along = (x[None, :], z[:, None]) if wall.axis == 0 else (z[:, None], x[None, :])
            inside = (abs(across - wall.at) <= wall_half + CELL / 2) & (along >= wall.start) & (along <= wall.stop)
            for door in (door for door in plan.doors if door.wall == wall):
                inside = inside & (abs(along - door.middle) > door.width / 2)
            taken |= inside
        doorway = np.zeros_like(taken)
        for door in plan.doors:
            at_x, at_z = door.position
            doorway |= np.hypot(x[None, :] - at_x, z[:, None] - at_z) < DOORWAY
        doors = tuple(cell_at(*door.position) for door in plan.doors)
        return cls(taken, doorway, doors, _reachable(taken, doors[0]))

    def allows(self, solids: Iterable[Solid]) -> bool:
        """Whether a thing's footprint is free, with a hand's breadth around it, and away from doors."""
        footprint = self._footprint(solids, margin=0.02)
        return not bool((footprint & (self.taken | self.doorway)).any()) and bool(footprint.any())

    def with_solids(self, solids: Iterable[Solid]) -> "Occupancy":
        """With a thing set down."""
        taken = self.taken | self._footprint(solids, margin=CELL / 2)
        return Occupancy(taken, self.doorway, self.doors, _reachable(taken, self.doors[0]))

    @property
    def every_door_is_open(self) -> bool:
        """Whether a camera can go from every door to every other."""
        return all(bool(self.walkable[door]) for door in self.doors)

    def roomy(self) -> Bool[np.ndarray, "rows columns"]:
        """Walkable cells with space around them, where a camera does not stand with its face to a wall."""
        return ~_grown(~self.walkable, _SPACE)

    def holds(self, cell: tuple[int, int]) -> bool:
        """Whether there is such a cell."""
        return all(0 <= index < count for index, count in zip(cell, self.walkable.shape, strict=True))

    def _footprint(self, solids: Iterable[Solid], margin: float) -> Bool[np.ndarray, "rows columns"]:
        rows, columns = self.taken.shape
        x, z = _middles(columns)[None, :], _middles(rows)[:, None]
        covered = np.zeros((rows, columns), dtype=bool)
        for solid in solids:
            cos, sin = np.cos(solid.turn_rad), np.sin(solid.turn_rad)
            away_x, away_z = x - solid.center[0], z - solid.center[2]
            own_x, own_z = cos * away_x - sin * away_z, sin * away_x + cos * away_z
            radius_x, radius_z = solid.half[0] + margin, solid.half[2] + margin
            covered |= (abs(own_x) <= max(radius_x, CELL)) & (abs(own_z) <= max(radius_z, CELL))
        return covered


def cell_at(x: float, z: float) -> tuple[int, int]:
    """Row and column of the cell around a point."""
    return (int(z / CELL), int(x / CELL))


def _reachable(taken: Bool[np.ndarray, "rows columns"], door: tuple[int, int]) -> Bool[np.ndarray, "rows columns"]:
    return steps_to(~_grown(taken, CLEARANCE), door) >= 0


def _middles(count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) * CELL


def _grown(cells: Bool[np.ndarray, "rows columns"], radius: float) -> Bool[np.ndarray, "rows columns"]:
    """Every cell whose middle is within the radius of a marked one's; beyond the grid all is marked."""
    reach = int(radius / CELL)
    rows, columns = cells.shape
    padded = np.ones((rows + 2 * reach, columns + 2 * reach), dtype=bool)
    padded[reach : reach + rows, reach : reach + columns] = cells
    grown = np.zeros_like(cells)
    for down in range(-reach, reach + 1):
        for right in range(-reach, reach + 1):
            if (down * down + right * right) * CELL * CELL <= radius * radius:
                grown |= padded[reach + down : reach + down + rows, reach + right : reach + right + columns]
    return grown


def steps_to(walkable: Bool[np.ndarray, "rows columns"], goal: tuple[int, int]) -> Int[np.ndarray, "rows columns"]:
    """Steps from every cell to the goal, along rows and columns over walkable cells; -1 where there is no way."""
    free = np.pad(walkable, 1).ravel()
    steps = np.full(free.shape, -1, dtype=np.int32)
    last_place = np.zeros(free.shape, dtype=np.int32)
    width = walkable.shape[1] + 2
    neighbours = np.array([-width, -1, 1, width])[:, None]
    goal_cell = (goal[0] + 1) * width + goal[1] + 1
    front = np.array([goal_cell])[free[[goal_cell]]]
    count = 0
    while len(front):
        free[front] = False
        steps[front] = count
        around = (front + neighbours).ravel()
        reached = around[free[around]]
        places = np.arange(len(reached), dtype=np.int32)
        last_place[reached] = places
        front = reached[last_place[reached] == places]  # each cell once
        count += 1
    return steps.reshape(-1, width)[1:-1, 1:-1]
