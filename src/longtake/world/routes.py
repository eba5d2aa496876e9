"""Ways of a camera along a track, as long as they are asked for: driven, flown, walked, held by hand, or on the spot.

Where a camera is and looks is a smooth function of how far it has come, so that a place met again looks the same. How
far it goes between two frames follows from what it sees: far from everything it moves fast, close to something slowly,
so that points move by about the same share of the image from frame to frame.

    travelled   0 ─────▶ length ─────▶ 2 length      closed: round after round
                0 ─────▶ length ◀───── 2 length      else: from end to end
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float

from longtake.world.axis_turns import about_x, about_y, about_z
from longtake.world.content import World
from longtake.world.render import view_depth
from longtake.world.scene import Scene
from longtake.world.tracks import Motion, Track
from longtake.world.walk import Footstep

_PROBE = (6, 8)
"""Height and width of the picture that tells how far things are."""
_FRAMES_PER_PROBE = 6
_FRAMES_TO_TURN_BACK = 4
_FAR = 1e4
_MOST_DOWN_RAD = 1.3
_TREMOR_OF_CLEARANCE = 0.1
"""How much of the clearance a shaking hand may use."""


@dataclass(frozen=True, slots=True)
class _Style:
    """What sets one motion apart from another; angles in degrees."""

    flow: tuple[float, float]
    """Share of the image's width by which points move between frames."""
    wander: float
    """How far the gaze strays to the sides."""
    down: tuple[float, float]
    nod: float
    roll: float
    tremor: float
    to_and_fro: float
    """Share of the routes that turn back now and then."""


_STYLES = {
    Motion.WALK: _Style((0.015, 0.05), wander=35.0, down=(0.0, 12.0), nod=6.0, roll=2.0, tremor=0.25, to_and_fro=0.45),
    Motion.HANDHELD: _Style(
        (0.01, 0.035), wander=50.0, down=(-5.0, 25.0), nod=14.0, roll=15.0, tremor=0.4, to_and_fro=0.75
    ),
    Motion.DRIVE: _Style((0.015, 0.05), wander=8.0, down=(0.0, 5.0), nod=1.0, roll=1.0, tremor=0.1, to_and_fro=0.35),
    Motion.FLY: _Style((0.012, 0.04), wander=20.0, down=(15.0, 45.0), nod=8.0, roll=3.0, tremor=0.1, to_and_fro=0.3),
    Motion.ORBIT: _Style((0.012, 0.045), wander=6.0, down=(0.0, 0.0), nod=4.0, roll=3.0, tremor=0.2, to_and_fro=0.3),
    Motion.STILL: _Style((0.0, 0.0), wander=0.0, down=(0.0, 12.0), nod=0.0, roll=4.0, tremor=0.08, to_and_fro=0.0),
    Motion.TURN: _Style((0.015, 0.045), wander=0.0, down=(0.0, 12.0), nod=6.0, roll=3.0, tremor=0.15, to_and_fro=0.3),
}
_FAST_SHARE, _FAST = 0.12, 1.8
"""How many routes are fast, and by how much."""
_BANK = 0.5
"""Radians of roll for a radian of turn within a tenth of the way."""
_MOST_BANK_RAD = math.radians(25)


def travel(world: World, fov_rad: float, rng: np.random.Generator) -> Iterator[Footstep]:
    """Camera poses frame by frame along the world's track, without an end."""
    assert world.track is not None
    ride, scene = _Ride(world.track, rng), Scene.of([world])
    style = _STYLES[world.track.motion]
    usual_flow = float(rng.uniform(*style.flow)) * (_FAST if rng.random() < _FAST_SHARE else 1)
    pace = _Waves(rng, (40.0, 200.0))
    is_still = world.track.motion is Motion.STILL
    shake = _TREMOR_OF_CLEARANCE * world.track.clearance * (0.1 if is_still else 1)
    tremor = _Tremor(math.radians(style.tremor), shake, rng)
    turns_back = rng.random() < style.to_and_fro
    frames_each_way = int(rng.integers(70, 190))
    travelled, step, points = 0.0, 0.0 if is_still else ride.length / 300, np.zeros((0, 3))
    frame = 0
    while True:
        pose = ride.pose_at(travelled)
        if not is_still:
            if frame % _FRAMES_PER_PROBE == 0:
                points = _points_seen(scene, pose, fov_rad)
            flow = usual_flow * (1 + 0.4 * pace.at(float(frame)))
            for _ in range(12 if frame == 0 else 1):
                step = _adjusted(step, _flow(points, pose, ride.pose_at(travelled + step), fov_rad), flow, ride.length)
        yield Footstep(tremor.shaken(pose), 0, world.track.motion in {Motion.TURN, Motion.HANDHELD})
        frame += 1
        travelled += step * (_forth_and_back(frame, frames_each_way) if turns_back else 1)


def slowed(steps: Iterator[Footstep], pace: float) -> Iterator[Footstep]:
    """The same way at a share of its pace, 0 to 1: frames lie between those that were."""
    before, after = next(steps), next(steps)
    place = 0.0
    while True:
        yield replace(before, world_from_camera=_between(before.world_from_camera, after.world_from_camera, place))
        place += pace
        while place >= 1:
            before, after, place = after, next(steps), place - 1


def _between(one: Float[np.ndarray, "4 4"], other: Float[np.ndarray, "4 4"], share: float) -> Float[np.ndarray, "4 4"]:
    """A pose on the way from one to another that is near: the rotation nearest to the mixed one."""
    pose = (1 - share) * one + share * other
    left, _, right = np.linalg.svd(pose[:3, :3])
    pose[:3, :3] = left @ right
    return pose


def _forth_and_back(frame: int, frames_each_way: int) -> float:
    """1 on the way forth, -1 on the way back, less where it turns."""
    since = frame % frames_each_way
    direction = 1 if frame // frames_each_way % 2 == 0 else -1
    return direction * min(1.0, (min(since, frames_each_way - since) + 1) / _FRAMES_TO_TURN_BACK)


def _points_seen(scene: Scene, pose: Float[np.ndarray, "4 4"], fov_rad: float) -> Float[np.ndarray, "points 3"]:
    """Points before the camera, in its own axes; the sky is far away."""
    height, width = _PROBE
    focal = width / 2 / math.tan(fov_rad / 2)
    intrinsics = np.array([[focal, 0, width / 2 - 0.5], [0, focal, height / 2 - 0.5], [0, 0, 1]])
    depth = view_depth(scene, torch.from_numpy(pose).float(), torch.from_numpy(intrinsics).float(), _PROBE)
    v, u = np.mgrid[:height, :width]
    rays = np.stack([(u - intrinsics[0, 2]) / focal, (v - intrinsics[1, 2]) / focal, np.ones(_PROBE)], axis=-1)
    return np.asarray(rays * np.minimum(depth.numpy().astype(float), _FAR)[..., None]).reshape(-1, 3)


def _flow(points: Float[np.ndarray, "points 3"], one: np.ndarray, other: np.ndarray, fov_rad: float) -> float:
    """Median share of the image's width by which points move from one pose to the other."""
    moved = (points @ one[:3, :3].T + one[:3, 3] - other[:3, 3]) @ other[:3, :3]
    before, after = points[:, :2] / points[:, 2:], moved[:, :2] / np.maximum(moved[:, 2:], 1e-3)
    return float(np.median(np.linalg.norm(after - before, axis=1))) / (2 * math.tan(fov_rad / 2))


def _adjusted(step: float, flow: float, wanted: float, length: float) -> float:
    """A step nearer to the one that gives the flow wanted; a round takes 40 frames at least."""
    return float(np.clip(step * np.clip(wanted / max(flow, 1e-9), 0.8, 1.25), length / 4000, length / 40))


class _Waves:
    """A smooth random function from -1 to 1."""

    def __init__(self, rng: np.random.Generator, periods: tuple[float, float], num_waves: int = 4) -> None:
        shortest, longest = np.log(periods)
        self._period = np.exp(rng.uniform(shortest, longest, size=num_waves))
        self._phase = rng.uniform(0, 2 * np.pi, size=num_waves)
        share = rng.uniform(0.3, 1, size=num_waves)
        self._share = share / share.sum()

    def repeating(self, length: float) -> "_Waves":
        """The same, with the nearest periods that fit into a length."""
        self._period = length / np.maximum(np.round(length / self._period), 1)
        return self

    def at(self, place: float) -> float:
        return float(self._share @ np.sin(2 * np.pi * place / self._period + self._phase))


class _Ride:
    """Where a camera is and looks, after it has come so far."""

    def __init__(self, track: Track, rng: np.random.Generator) -> None:
        self._track, style = track, _STYLES[track.motion]
        corners = np.array([*track.points, track.points[0]] if track.is_closed else track.points)
        self._corners = corners
        self._along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
        self.length = float(self._along[-1])
        self._yaw_rad, self._is_full_turn = float(rng.uniform(-np.pi, np.pi)), bool(rng.random() < 0.6)
        self._backwards = bool(rng.random() < 0.15) and track.motion in {Motion.FLY, Motion.HANDHELD}
        periods = (self.length / 6, self.length)
        self._sides, self._nods, self._rolls = (_Waves(rng, periods).repeating(self.length) for _ in range(3))
        self._wander_rad, self._nod_rad = math.radians(style.wander), math.radians(style.nod)
        self._roll_rad = math.radians(style.roll) * float(rng.uniform(0.1, 1))
        self._down_rad = math.radians(float(rng.uniform(*style.down)))

    def pose_at(self, travelled: float) -> Float[np.ndarray, "4 4"]:
        """`world_from_camera`, without tremor."""
        place = self._place(travelled)
        position = self._position(0.0 if self._stays else place)
        yaw_rad, down_rad = self._gaze(place, position)
        down_rad = float(
            np.clip(down_rad + self._nod_rad * self._nods.at(place), self._track.least_down_rad, _MOST_DOWN_RAD)
        )
        pose = np.eye(4)
        pose[:3, :3] = about_y(yaw_rad) @ about_x(-down_rad) @ about_z(self._roll(place))
        pose[:3, 3] = position
        return pose

    @property
    def _stays(self) -> bool:
        return self._track.motion in {Motion.STILL, Motion.TURN}

    def _place(self, travelled: float) -> float:
        if self._track.is_closed or self._stays:
            return travelled
        there = travelled % (2 * self.length)
        return min(there, 2 * self.length - there)

    def _position(self, place: float) -> Float[np.ndarray, "3"]:
        at = place % self.length if self._track.is_closed else min(max(place, 0.0), self.length)
        return np.array([np.interp(at, self._along, self._corners[:, axis]) for axis in range(3)])

    def _gaze(self, place: float, position: Float[np.ndarray, "3"]) -> tuple[float, float]:
        """To the sides and down, in radians."""
        aside = self._wander_rad * self._sides.at(place)
        if self._track.motion is Motion.TURN:
            turn = 2 * np.pi * place / self.length
            return self._yaw_rad + (turn if self._is_full_turn else 1.6 * math.sin(turn)), self._down_rad
        if self._track.focus is not None:
            toward = np.array(self._track.focus) - position
            return self._bearing(toward) + aside, math.atan2(toward[1], math.hypot(toward[0], toward[2]))
        toward = self._ahead(place)
        return self._bearing(toward) + aside + np.pi * self._backwards, self._down_rad

    def _ahead(self, place: float) -> Float[np.ndarray, "3"]:
        """The way over the next tenth; at the end of a way that is not closed, the last one."""
        reach = 0.1 * self.length
        start = place if self._track.is_closed else min(place, self.length - reach)
        return np.asarray(self._position(start + reach) - self._position(start))

    def _bearing(self, toward: Float[np.ndarray, "3"]) -> float:
        return math.atan2(toward[0], toward[2])

    def _roll(self, place: float) -> float:
        roll = self._roll_rad * self._rolls.at(place)
        if self._track.motion is Motion.FLY:
            before, after = (self._bearing(self._ahead(place + way * self.length)) for way in (-0.05, 0.05))
            turn = (after - before + np.pi) % (2 * np.pi) - np.pi
            roll += float(np.clip(_BANK * turn, -_MOST_BANK_RAD, _MOST_BANK_RAD))
        return roll


class _Tremor:
    """Small shaking in all six degrees of freedom, bounded."""

    def __init__(self, angle_rad: float, length: float, rng: np.random.Generator) -> None:
        self._rng = rng
        self._size = np.array([angle_rad] * 3 + [length / 2] * 3)
        self._now = np.zeros(6)

    def shaken(self, pose: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "4 4"]:
        """The pose one frame later."""
        self._now = np.clip(0.75 * self._now + 0.4 * self._rng.standard_normal(6), -1.1, 1.1)
        x, y, z, *aside = self._now * self._size
        shaken = pose.copy()
        shaken[:3, :3] = pose[:3, :3] @ about_y(y) @ about_x(x) @ about_z(z)
        shaken[:3, 3] += aside
        return shaken
