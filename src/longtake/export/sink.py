"""Where mapped frames go: written one by one, put away at checkpoints, taken up again after a break."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np

from longtake.export.frame import MappedFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkState:
    """All that a sink needs, beside its files, to go on from a checkpoint."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Plain values that JSON can hold."""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


class Sink(ABC):
    """Takes frames in order and makes files of them.

    A sink made with the state of a checkpoint goes on from there: whatever was written after it is cut off or replaced,
    so that in the end the files are those of a run that was never broken off, to the last byte. What the disk does not
    take is one sentence; what was written before stays readable.
    """

    @abstractmethod
    def write(self, frame: MappedFrame) -> None:
        """Take the next frame."""

    @abstractmethod
    def checkpoint(self) -> SinkState:
        """Bring all frames so far to the disk, and tell what is needed to go on after them."""

    @abstractmethod
    def close(self) -> None:
        """Leave whole files; nothing is written afterwards."""

    def __enter__(self) -> "Sink":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


OpenSink = Callable[[SinkState | None], Sink]
"""Makes a sink: a new one, or one that goes on from a checkpoint."""
