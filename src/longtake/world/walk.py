"""Walks through a house that never end: from goal to goal through doors, looking around a third of the time.

A walk is made as it goes and holds nothing of its past but where it is. Between two frames the camera moves by 0.03 to
0.15 m and turns by at most 8 degrees.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from longtake.world.axis_turns import about_x, about_y, about_z
from longtake.world.house import House
from longtake.world.occupancy import CELL, Occupancy, cell_at, steps_to

WALK_FPS = 10.0
"""Frames a second at which these steps are those of somebody walking."""
SHORTEST_STEP, LONGEST_STEP = 0.03, 0.15
LARGEST_TURN_RAD = np.radians(8.0)
_YAW_RATE_RAD = float(np.radians(6.0))
_SPACING = 0.02
"""Between points of a path."""
_LOOK_AHEAD = 1.6
"""How far ahead on its path a walking camera looks, in metres."""
_SMOOTHING = 0.25
"""Metres of path over which corners are rounded."""


@dataclass(frozen=True, slots=True)
class Footstep:
    """One frame of a walk."""

    world_from_camera: Float[np.ndarray, "4 4"]
    room: int
    looks_around: bool


def walk(house: House, seed: int, number: int = 0) -> Iterator[Footstep]:
    """Camera poses frame by frame, without an end; the same house, seed and number give the same walk."""
    return stroll(house, np.random.default_rng([seed, 1, *([number] if number else [])]))


def stroll(house: House, rng: np.random.Generator, eye_height: float | None = None) -> Iterator[Footstep]:
    """A walk drawn by any generator, at the height of a grown-up's eyes or at another."""
    gaze = _Gaze(rng, eye_height)
    for position, ahead, stride in _positions(house, rng):
        gaze.follow(ahead - position, stride)
        yield Footstep(gaze.pose_at(position), room_at(house, position), gaze.looks_around)


def room_at(house: House, position: Float[np.ndarray, "2"]) -> int:
    """Which room a point of the plan is in."""
    for index, room in enumerate(house.rooms):
        if bool((position >= room.area.low).all() and (position < room.area.high).all()):
            return index
    raise AssertionError(f"{position} lies outside the house")


def way(house: House, rng: np.random.Generator, height: float) -> tuple[tuple[float, float, float], ...]:
    """A way from one place to another far from it, through doors, at a height above the floor."""
    path = next(_legs(house, rng))
    return tuple((float(x), -height, float(z)) for x, z in path)


def _positions(
    house: House, rng: np.random.Generator
) -> Iterator[tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2"], float]]:
    """Where the camera is, a point ahead on its path, and its last step's length."""
    usual, pace = rng.uniform(0.05, 0.11), 0.0
    legs = _legs(house, rng)
    path = next(legs)
    position = path[0]
    while True:
        pace = 0.95 * pace + 0.1 * rng.standard_normal()
        stride = float(np.clip(usual * (1 + 0.4 * pace), SHORTEST_STEP + 0.005, LONGEST_STEP - 0.01))
        while len(path) * _SPACING < _LOOK_AHEAD + 1:
            path = np.concatenate([path, next(legs)])
        while (far := np.linalg.norm(path - position, axis=1) >= stride).argmax() == 0 and not far[0]:
            path = np.concatenate([path, next(legs)])
        index = int(far.argmax())
        toward = path[index] - position
        position = position + toward * (stride / np.linalg.norm(toward))
        path = path[index:]
        yield position, path[min(int(_LOOK_AHEAD / _SPACING), len(path) - 1)], stride


def _legs(house: House, rng: np.random.Generator) -> Iterator[Float[np.ndarray, "points 2"]]:
    """Paths from goal to goal, each beginning where the last ended; every fifth leads back to where all began."""
    roomy = house.occupancy.roomy()
    home = here = _any_cell(house, roomy, rng)
    for count in itertools.count(1):
        several = [_any_cell(house, roomy, rng) for _ in range(3)]
        goal = home if count % 5 == 0 else max(several, key=lambda cell: math.dist(cell, here))
        if goal != here:
            yield _smooth(_cells_to_points(_shortest(house.occupancy, here, goal)))
        here = goal


def _any_cell(house: House, roomy: Bool[np.ndarray, "rows columns"], rng: np.random.Generator) -> tuple[int, int]:
    """A cell of a random room: one with space around it, or else any where a camera may be."""
    area = house.rooms[int(rng.integers(len(house.rooms)))].area
    (near, left), (far, right) = (cell_at(*corner) for corner in (area.low, area.high))
    inside = np.zeros_like(roomy)
    inside[near:far, left:right] = True
    for cells in (roomy & inside, house.occupancy.walkable & inside, house.occupancy.walkable):
        if cells.any():
            row, column = rng.choice(np.argwhere(cells))
            return (int(row), int(column))
    raise AssertionError("the cell of the first door is always walkable")


def _shortest(occupancy: Occupancy, start: tuple[int, int], goal: tuple[int, int]) -> list[tuple[int, int]]:
    """Cells of a shortest way, only those where it bends."""
    steps = steps_to(occupancy.walkable, goal)
    cells = [start]
    while cells[-1] != goal:
        row, column = cells[-1]
        around = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        nearer = [cell for cell in around if occupancy.holds(cell) and 0 <= steps[cell] < steps[row, column]]
        cells.append(min(nearer, key=lambda cell: math.dist(cell, goal)))
    return _pulled_tight(cells, occupancy)


def _pulled_tight(cells: list[tuple[int, int]], occupancy: Occupancy) -> list[tuple[int, int]]:
    """Each kept cell is the farthest that can be reached straight from the last."""
    kept, at = [cells[0]], 0
    while at < len(cells) - 1:
        low, high = at + 1, len(cells) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if _is_straight(cells[at], cells[middle], occupancy):
                low = middle
            else:
                high = middle - 1
        kept.append(cells[low])
        at = low
    return kept


def _is_straight(start: tuple[int, int], stop: tuple[int, int], occupancy: Occupancy) -> bool:
    count = 2 * max(abs(stop[0] - start[0]), abs(stop[1] - start[1])) + 1
    rows, columns = (np.linspace(start[i], stop[i], count).round().astype(int) for i in (0, 1))
    return bool(occupancy.walkable[rows, columns].all())


def _cells_to_points(cells: list[tuple[int, int]]) -> Float[np.ndarray, "corners 2"]:
    return (np.array(cells, dtype=float)[:, ::-1] + 0.5) * CELL


def _smooth(corners: Float[np.ndarray, "corners 2"]) -> Float[np.ndarray, "points 2"]:
    """Evenly spaced points along the corners, which become curves."""
    lengths = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    along = np.arange(0, lengths[-1] + _SPACING, _SPACING)
    points = np.stack([np.interp(along, lengths, corners[:, axis]) for axis in (0, 1)], axis=1)
    reach = int(_SMOOTHING / _SPACING)
    padded = np.concatenate([points[:1].repeat(reach, axis=0), points, points[-1:].repeat(reach, axis=0)])
    sums = np.concatenate([np.zeros((1, 2)), np.cumsum(padded, axis=0)])
    window = 2 * reach + 1
    return np.asarray((sums[window:] - sums[:-window]) / window)


class _Gaze:
    """Where the camera looks: along its path two thirds of the time, else from side to side; and its bob."""

    def __init__(self, rng: np.random.Generator, height: float | None) -> None:
        self._rng = rng
        usual_height = float(rng.uniform(1.35, 1.6))
        self._height = usual_height if height is None else height
        self._yaw_rad = float(rng.uniform(-np.pi, np.pi))
        self._yaw_step_rad = 0.0
        self._nod, self._tilt = 0.0, 0.0
        self._walked = 0.0
        self._frames_left, self._frames = 0, 1
        self._sweep_rad = 0.0
        self.looks_around = True

    def follow(self, ahead: Float[np.ndarray, "2"], stride: float) -> None:
        """One frame on: `ahead` points along the path, of which `stride` metres were walked."""
        if self._frames_left == 0:
            self._change_mind()
        self._frames_left -= 1
        self._walked += stride
        target = float(np.arctan2(ahead[0], ahead[1]))
        if self.looks_around:
            target += self._sweep_rad * float(np.sin(np.pi * self._frames_left / self._frames))
        away = (target - self._yaw_rad + np.pi) % (2 * np.pi) - np.pi
        wanted = float(np.clip(0.2 * away, -_YAW_RATE_RAD, _YAW_RATE_RAD))
        self._yaw_step_rad += 0.4 * (wanted - self._yaw_step_rad)
        self._yaw_rad += self._yaw_step_rad
        self._nod = 0.97 * self._nod + float(np.clip(0.02 * self._rng.standard_normal(), -0.02, 0.02))
        self._tilt = 0.9 * self._tilt + float(np.clip(0.004 * self._rng.standard_normal(), -0.006, 0.006))

    def pose_at(self, position: Float[np.ndarray, "2"]) -> Float[np.ndarray, "4 4"]:
        """`world_from_camera` at a point of the plan."""
        pose = np.eye(4)
        pose[:3, :3] = about_y(self._yaw_rad) @ about_x(self._nod - 0.14) @ about_z(self._tilt)
        bob = 0.015 * np.sin(self._walked / 0.7 * 2 * np.pi)
        pose[:3, 3] = (position[0], bob - self._height, position[1])
        return pose

    def _change_mind(self) -> None:
        """Looking around is followed by walking for twice as long."""
        self.looks_around = not self.looks_around
        if self.looks_around:
            self._frames = int(self._rng.integers(30, 61))
            self._sweep_rad = (
                float(self._rng.choice([-1, 1]) * self._rng.uniform(0.6, 1) * self._frames / np.pi) * _YAW_RATE_RAD
            )
            self._frames_left = self._frames
        else:
            self._frames_left = 2 * self._frames
