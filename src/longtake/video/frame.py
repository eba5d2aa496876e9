"""One frame of a video: decoded, and before that, when only its time is known."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8


@dataclass(frozen=True, slots=True, eq=False)
class VideoFrame:
    """A frame with its picture, or with a sentence on why there is none."""

    index: int
    """Its place among the frames that were asked for, from 0."""
    timestamp_s: float
    """Increases from frame to frame."""
    image: UInt8[np.ndarray, "height width 3"] | None
    """Red, green and blue, upright."""
    problem: str | None = None
    name: str | None = None
    """Of the picture's file without its ending, where there is one for each frame."""

    def __post_init__(self) -> None:
        assert (self.image is None) != (self.problem is None), "a frame has a picture or a problem"


@dataclass(frozen=True, slots=True, eq=False)
class PendingFrame:
    """A frame that is not decoded yet: `read` makes its picture if sampling takes it."""

    timestamp_s: float
    read: Callable[[], UInt8[np.ndarray, "height width 3"]] | None
    """Makes the picture, or raises an InputError that says why there is none."""
    problem: str | None = None
    """Why there is no picture, where that is known already."""
    name: str | None = None
    """Of the picture's file without its ending, where there is one for each frame."""

    @classmethod
    def unreadable(cls, timestamp_s: float, problem: str) -> "PendingFrame":
        return cls(timestamp_s, None, problem)
