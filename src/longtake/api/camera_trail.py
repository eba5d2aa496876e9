"""The frames that a dialogue sees at its own rate, and the camera poses of these."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.errors import InputError
from longtake.exports.frame import moved_along
from longtake.pipeline.live import interval_at
from longtake.takes.fields import JsonObject
from longtake.types import Geometry, Moved


@dataclass(frozen=True, slots=True)
class CameraTrail:
    """The first frame in each interval of 1/fps is a look; poses are kept of looks alone, a few MB an hour. A value."""

    fps: float
    first_s: float | None = None
    last_s: float | None = None
    interval: int = -1
    """Of the last look."""
    looks_s: Sequence[float] = ()
    poses: Mapping[float, Tensor] = field(default_factory=dict)
    """Of those looks whose pose is known, by time."""
    frames: Mapping[float, int] = field(default_factory=dict)
    """Of the same looks which frames of the video they are; those of saves by earlier versions are not among them."""
    newest: Float[Tensor, "4 4"] | None = None
    """Of the newest frame that has a pose, look or not."""
    newest_frame: int | None = None

    def require_later(self, time_s: float) -> None:
        """Refuse a frame that is not after the last."""
        if self.last_s is not None and not time_s > self.last_s:
            raise InputError(f"Expected a frame after {self.last_s} s, but got one at {time_s} s; give them in order.")

    def is_due(self, time_s: float) -> bool:
        """Whether the frame of this time is a look."""
        return self._interval_of(time_s) > self.interval

    def after(self, time_s: float, geometry: Geometry) -> "CameraTrail":
        """The trail once the frame of this time was given and these poses became known."""
        passed = replace(self, first_s=time_s if self.first_s is None else self.first_s, last_s=time_s)
        if self.is_due(time_s):
            passed = replace(passed, interval=self._interval_of(time_s), looks_s=[*self.looks_s, time_s])
        return passed.with_poses(geometry)

    def with_poses(self, geometry: Geometry) -> "CameraTrail":
        """With new poses, and corrected ones of earlier frames."""
        trail = self if geometry.moved is None else self._moved(geometry.moved)
        known, frames = dict[float, Tensor](), dict[float, int]()
        newest, newest_frame = trail.newest, trail.newest_frame
        poses = geometry.world_from_camera.cpu()
        for frame, time_s, pose in zip(geometry.frame_index, geometry.timestamp_s, poses, strict=True):
            newest, newest_frame = pose.clone(), frame
            place = bisect_right(self.looks_s, time_s) - 1
            if place >= 0 and self.looks_s[place] == time_s:
                known[time_s], frames[time_s] = newest, frame
        if not known:
            return replace(trail, newest=newest, newest_frame=newest_frame)
        return replace(
            trail,
            newest=newest,
            newest_frame=newest_frame,
            poses={**trail.poses, **known},
            frames={**trail.frames, **frames},
        )

    def _moved(self, moved: Moved) -> "CameraTrail":
        """With what earlier frames became: those told anew, and those that moved along with their span."""
        again = moved.geometry
        poses = {
            time_s: moved_along(moved.spans, self.frames[time_s], pose) if time_s in self.frames else pose
            for time_s, pose in self.poses.items()
        }
        newest = self.newest
        if newest is not None and self.newest_frame is not None:
            newest = moved_along(moved.spans, self.newest_frame, newest)
        told = again.world_from_camera.cpu()
        for frame, time_s, pose in zip(again.frame_index, again.timestamp_s, told, strict=True):
            if time_s in poses:
                poses[time_s] = pose.clone()
            if frame == self.newest_frame:
                newest = pose.clone()
        return replace(self, poses=poses, newest=newest)

    def pose_between(self, start_s: float, end_s: float) -> Float[Tensor, "4 4"] | None:
        """The pose of the last look in a span of time that has one."""
        for time_s in reversed(self.looks_s[: bisect_right(self.looks_s, end_s)]):
            if time_s < start_s:
                break
            if time_s in self.poses:
                return self.poses[time_s]
        return None

    def to_record(self) -> dict[str, Any]:
        """The trail as plain values for JSON."""
        return {
            "fps": self.fps,
            "first_s": self.first_s,
            "last_s": self.last_s,
            "interval": self.interval,
            "looks": [
                {"time_s": time_s, "pose": _numbers(self.poses.get(time_s)), "frame": self.frames.get(time_s)}
                for time_s in self.looks_s
            ],
            "newest": _numbers(self.newest),
            "newest_frame": self.newest_frame,
        }

    @classmethod
    def from_record(cls, record: JsonObject) -> "CameraTrail":
        looks = {look.number("time_s"): _pose(look, "pose") for look in record.objects("looks")}
        frames = {look.number("time_s"): look.optional("frame", look.integer) for look in record.objects("looks")}
        return cls(
            fps=record.positive_number("fps"),
            first_s=record.optional("first_s", record.number),
            last_s=record.optional("last_s", record.number),
            interval=record.integer("interval", least=-1),
            looks_s=list(looks),
            poses={time_s: pose for time_s, pose in looks.items() if pose is not None},
            frames={time_s: frame for time_s, frame in frames.items() if frame is not None},
            newest=_pose(record, "newest"),
            newest_frame=record.optional("newest_frame", record.integer),
        )

    def _interval_of(self, time_s: float) -> int:
        first_s = time_s if self.first_s is None else self.first_s
        return interval_at(time_s - first_s, self.fps)


def _numbers(pose: Float[Tensor, "4 4"] | None) -> list[float] | None:
    return None if pose is None else [float(number) for number in pose.flatten()]


def _pose(record: JsonObject, name: str) -> Float[Tensor, "4 4"] | None:
    numbers = record.optional(name, lambda name: record.numbers(name, 16))
    return None if numbers is None else torch.tensor(numbers).reshape(4, 4)
