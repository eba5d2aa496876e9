"""What every session of a video has in common: frames go in one by one, and a whole video is all its steps."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from jaxtyping import Shaped
from torch import Tensor

from longtake.types import Geometry

Frame = Shaped[Tensor, "..."]
"""Given by users, so checked in `step`: three channels of the session's size, as bytes or floats."""


class VideoSession(ABC):
    """Takes frames in order and answers each of them once, in order."""

    @abstractmethod
    def step(self, frame: Frame, timestamp_s: float | None = None) -> Geometry:
        """Take the next frame and return what became known."""

    @abstractmethod
    def finish(self) -> Geometry:
        """What is still to be said when no more frames come."""

    def run(self, frames: Iterable[Frame]) -> Iterator[Geometry]:
        """Step through all frames and finish, leaving out empty answers."""
        for frame in frames:
            if len(geometry := self.step(frame)):
                yield geometry
        if len(geometry := self.finish()):
            yield geometry
