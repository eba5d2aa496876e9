"""A sink that another process can import, and that fails."""

import time

from longtake.errors import InputError
from longtake.exports.frame import MappedFrame
from longtake.exports.sink import PreparingSink, SinkState


class FailingSink(PreparingSink):
    """Its second frame cannot be written, and takes a while to find that out."""

    def __init__(self, state: SinkState | None) -> None:
        self._is_closed = False

    def prepare(self, frame: MappedFrame) -> MappedFrame:
        return frame

    def append(self, prepared: MappedFrame) -> None:
        if prepared.index == 1:
            time.sleep(0.3)
            self._is_closed = True
            raise InputError("The disk is full.")

    def checkpoint(self) -> SinkState:
        if self._is_closed:
            raise InputError("The take is closed.")
        return SinkState()

    def close(self) -> None: ...
