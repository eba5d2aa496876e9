"""Where mapped frames go. Sinks are of three kinds, by what they can do with a frame that they have taken:

one-shot   write ... close                the frames of a finished take, in order; the files are whole once it is closed
append     write ... checkpoint ... close the final frames of a running video; goes on after a break
replacing  write ... correct ... close    frames as soon as they are known, and again when a later one moves them
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any

import numpy as np

from longtake.exports.frame import MappedFrame, PosedFrame
from longtake.types import MovedSpan


class SinkKind(StrEnum):
    """When frames reach a sink."""

    APPEND = "append"
    """While the video runs, each once it is final."""
    REPLACE = "replace"
    """While the video runs, each at once, and again when it moves."""
    ONE_SHOT = "one-shot"
    """When the video has ended, from its take."""


class Sink(ABC):
    """Takes frames in order and makes files of them, which are whole once it is closed; all that a one-shot one does.

    What the disk does not take is one sentence; what was written before stays readable.
    """

    @abstractmethod
    def write(self, frame: MappedFrame) -> None:
        """Take the next frame."""

    @abstractmethod
    def close(self) -> None:
        """Leave whole files; nothing is written afterwards."""

    def __enter__(self) -> "Sink":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkState:
    """All that an append sink needs, beside its files, to go on from a checkpoint."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Plain values that JSON can hold."""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


class AppendSink(Sink):
    """Takes final frames while the video runs; what it has written never changes.

    One made with the state of a checkpoint goes on from there: whatever was written after it is cut off or replaced, so
    that in the end the files are those of a run that was never broken off, to the last byte.
    """

    @abstractmethod
    def checkpoint(self) -> SinkState:
        """Bring all frames so far to the disk; returns what is needed to go on after them."""

    def prepare(self, frame: MappedFrame) -> Any:
        """The work on a frame that needs no other: several threads may do it at once, for frames still to come."""
        return frame

    def append(self, prepared: Any) -> None:
        """Write the next frame, which was prepared."""
        self.write(prepared)


class PreparingSink(AppendSink):
    """One that has much to do for each frame on its own."""

    @abstractmethod
    def prepare(self, frame: MappedFrame) -> Any: ...

    @abstractmethod
    def append(self, prepared: Any) -> None: ...

    def write(self, frame: MappedFrame) -> None:
        self.append(self.prepare(frame))


OpenAppendSink = Callable[[SinkState | None], AppendSink]
"""Makes a sink: a new one, or one that goes on from a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What earlier frames became."""

    version: int
    """Corrections count from 1."""
    frames: tuple[PosedFrame, ...] = ()
    """Frames as they are known now."""
    spans: tuple[MovedSpan, ...] = ()
    """Frames of these that are not among `frames` moved along."""


class ReplacingSink(Sink):
    """Takes frames at once, provisional ones too; a correction replaces what it moves, and the last one stands."""

    @abstractmethod
    def correct(self, correction: Correction) -> None:
        """Replace earlier frames; corrections come in the order of their versions."""


class Tee(PreparingSink):
    """Hands each frame to several append sinks, in the order they are named."""

    def __init__(self, sinks: Mapping[str, OpenAppendSink], *, state: SinkState | None = None) -> None:
        """Opens them all; where one cannot be opened, those before it are closed again."""
        with ExitStack() as opened:
            self._sinks: dict[str, AppendSink] = {}
            for name, open_sink in sinks.items():
                self._sinks[name] = open_sink(None if state is None else _part(state, name))
                opened.callback(self._sinks[name].close)
            self._closing = opened.pop_all()

    def __getitem__(self, name: str) -> AppendSink:
        return self._sinks[name]

    def prepare(self, frame: MappedFrame) -> list[Any]:
        return [sink.prepare(frame) for sink in self._sinks.values()]

    def append(self, prepared: list[Any]) -> None:
        for sink, of_frame in zip(self._sinks.values(), prepared, strict=True):
            sink.append(of_frame)

    def checkpoint(self) -> SinkState:
        states = {name: sink.checkpoint() for name, sink in self._sinks.items()}
        arrays = {f"{name}/{array}": values for name, state in states.items() for array, values in state.arrays.items()}
        return SinkState(values={name: state.values for name, state in states.items()}, arrays=arrays)

    def close(self) -> None:
        """Close all, also where one fails."""
        self._closing.close()


def _part(state: SinkState, name: str) -> SinkState | None:
    """The state of one sink; none for one that was not there at the checkpoint."""
    if name not in state.values:
        return None
    arrays: dict[str, np.ndarray] = {
        array.removeprefix(f"{name}/"): values for array, values in state.arrays.items() if array.startswith(f"{name}/")
    }
    return SinkState(values=state.values[name], arrays=arrays)
