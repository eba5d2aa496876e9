"""Frames that a server may still lose, held by its client: the newest in memory, those before them in a file."""

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO
from weakref import finalize

from longtake.server.messages import BinaryMessage

_log = logging.getLogger(__name__)
MOST_BYTES = 16_000_000
"""Of frames in memory, beside the newest one."""


@dataclass(slots=True, eq=False)
class _Held:
    """A message, or where it lies in the file."""

    sequence: int
    num_bytes: int
    content: bytes | None
    room: tuple[int, int] = (0, 0)
    """Where it begins, and how many bytes there are for it."""


class HeldFrames:
    """Oldest first. The file has no name, ends with the program, and its room is used again."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held: dict[int, _Held] = {}
        self._file: IO[bytes] | None = None
        self._end = 0
        self._free: list[tuple[int, int]] = []

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._held

    @property
    def next_sequence(self) -> int:
        """Of the frame after the newest; 0 where none is held."""
        return max(self._held, default=-1) + 1

    @property
    def num_resident_bytes(self) -> int:
        return sum(held.num_bytes for held in self._held.values() if held.content is not None)

    def hold(self, frame: BinaryMessage) -> bytes:
        """Returns the message, to be sent."""
        content = frame.pack()
        self._held[frame.sequence] = _Held(frame.sequence, len(content), content)
        self._make_room()
        return content

    def after(self, sequence: int) -> Iterator[bytes]:
        """The messages of this frame and those after it."""
        for held in tuple(self._held.values()):
            if held.sequence >= sequence:
                yield self._read(held) if held.content is None else held.content

    def let_go_before(self, sequence: int) -> None:
        for earlier in [held for held in self._held if held < sequence]:
            self.let_go(earlier)

    def let_go(self, sequence: int) -> None:
        held = self._held.pop(sequence)
        if held.content is None:
            self._free.append(held.room)

    def _make_room(self) -> None:
        """Write the oldest that are in memory; a disk that takes nothing leaves them there."""
        resident = [held for held in self._held.values() if held.content is not None]
        num_bytes = self.num_resident_bytes
        for held in resident[:-1]:
            if num_bytes <= self._most_bytes:
                return
            assert held.content is not None
            num_bytes -= held.num_bytes
            try:
                self._write(held, held.content)
            except OSError as error:
                _log.warning("frames are held in memory: %s", error)
                return

    def _write(self, held: _Held, content: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this
            finalize(self, self._file.close)
        fitting = next((room for room in self._free if room[1] >= len(content)), None)
        room = fitting or (self._end, len(content))
        self._file.seek(room[0])
        self._file.write(content)
        self._file.flush()
        if fitting is None:
            self._end += len(content)
        else:
            self._free.remove(fitting)
        held.room, held.content = room, None

    def _read(self, held: _Held) -> bytes:
        assert self._file is not None
        self._file.seek(held.room[0])
        return self._file.read(held.num_bytes)
