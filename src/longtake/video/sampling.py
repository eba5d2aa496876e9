"""Which frames of a video are wanted: a part of it, a rate, every so many."""

import math
import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from longtake.errors import SettingError

# Containers such as Matroska round times to a millisecond, so that a frame may come that much before its tick.
_ROUNDING_S = 0.001
_UNITS_S = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}


@runtime_checkable
class Timed(Protocol):
    """What sampling has to know of a frame."""

    @property
    def timestamp_s(self) -> float: ...

    @property
    def problem(self) -> str | None: ...


_Frame = TypeVar("_Frame", bound=Timed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How long a video is, as far as that is known beforehand."""

    num_frames: int | None = None
    fps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSampling:
    """A rule that picks frames by their times, which are counted from the video's first frame."""

    start_s: float = 0.0
    """The first moment that belongs to the part."""
    end_s: float | None = None
    """The first moment after it."""
    fps: float | None = None
    """At most so many frames a second."""
    stride: int = 1
    """One of so many of the frames that are left, beginning with the first."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start_s) and self.start_s >= 0):
            raise SettingError(f"Expected a start from 0 s, but got {self.start_s} s.")
        if self.end_s is not None and not self.end_s > self.start_s:
            raise SettingError(f"Expected an end after the start at {self.start_s} s, but got {self.end_s} s.")
        if self.fps is not None and not (math.isfinite(self.fps) and self.fps > 0):
            raise SettingError(f"Expected more than 0 frames a second, but got {self.fps}.")
        if self.stride < 1:
            raise SettingError(f"Expected a stride from 1, which takes every frame, but got {self.stride}.")

    def pick(self, frames: Iterable[_Frame]) -> Generator[_Frame, None, None]:
        """The frames that are wanted, as they come, and every problem among them.

        A rate divides time into intervals of 1/fps from the start on, and takes the first frame in each:

            interval    |0        |1        |2        |3
            frames      x  x  x     x  x  x   x  x  x
            taken       x           x         x

        Nothing waits for a later frame, uneven times are no trouble, and no frame is taken twice, so that a video with
        fewer frames a second keeps them all.
        """
        yield from self._every(self._at_rate(self._part(frames)))

    def estimate(self, extent: Extent) -> int | None:
        """About how many frames will be picked, exactly if all are; None where nobody can know."""
        if self == FrameSampling():
            return extent.num_frames
        if extent.fps is None or (extent.num_frames is None and self.end_s is None):
            return None
        first = _frame_at(self.start_s, extent.fps)
        stops = [extent.num_frames, None if self.end_s is None else _frame_at(self.end_s, extent.fps)]
        count = min(stop for stop in stops if stop is not None) - first
        if count > 0 and self.fps is not None and self.fps < extent.fps:
            earliest, last = (self._interval(place / extent.fps - self.start_s) for place in (first, first + count - 1))
            count = last - earliest + 1
        return math.ceil(max(count, 0) / self.stride)

    def _part(self, frames: Iterable[_Frame]) -> Generator[tuple[float, _Frame], None, None]:
        """Frames of the part, each with its seconds since the start."""
        first_s: float | None = None
        for frame in frames:
            first_s = frame.timestamp_s if first_s is None else first_s
            elapsed_s = frame.timestamp_s - first_s - self.start_s
            if self.end_s is not None and elapsed_s >= self.end_s - self.start_s - _ROUNDING_S:
                return
            if elapsed_s >= -_ROUNDING_S:
                yield elapsed_s, frame

    def _at_rate(self, timed_frames: Iterable[tuple[float, _Frame]]) -> Generator[_Frame, None, None]:
        taken: int | None = None
        for elapsed_s, frame in timed_frames:
            if self.fps is not None and frame.problem is None:
                interval = self._interval(elapsed_s)
                if taken is not None and interval <= taken:
                    continue
                taken = interval
            yield frame

    def _interval(self, elapsed_s: float) -> int:
        """Which interval of 1/fps a frame so long after the start is in."""
        assert self.fps is not None
        return math.floor((elapsed_s + min(_ROUNDING_S, 0.25 / self.fps)) * self.fps)

    def _every(self, frames: Iterable[_Frame]) -> Generator[_Frame, None, None]:
        num_pictures = 0
        for frame in frames:
            if frame.problem is not None:
                yield frame
                continue
            if num_pictures % self.stride == 0:
                yield frame
            num_pictures += 1


def _frame_at(time_s: float, fps: float) -> int:
    """The first frame that is not before this moment, of frames that come evenly from 0 s on."""
    return max(0, math.ceil(round((time_s - _ROUNDING_S) * fps, 6)))


def parse_time(text: str) -> float:
    """Seconds from `42.5`, `00:42` or `1:02:03.5`, or with a unit from `10s`, `500ms`, `2min` or `1.5h`."""
    if with_unit := re.fullmatch(r"(\d+(?:\.\d*)?)\s*(ms|s|min|h)", text.strip(), re.ASCII):
        return float(with_unit[1]) * _UNITS_S[with_unit[2]]
    match = re.fullmatch(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d*)?)", text.strip(), re.ASCII)
    if match is None:
        raise SettingError(f"Expected a time such as 42.5, 10s, 00:42 or 1:02:03.5, but got '{text}'.")
    hours, minutes, seconds = int(match[1] or 0), int(match[2] or 0), float(match[3])
    if (match[2] and seconds >= 60) or (match[1] and minutes >= 60):
        raise SettingError(f"Expected minutes and seconds below 60 in a time with colons, but got '{text}'.")
    return 3600 * hours + 60 * minutes + seconds
