"""The points of a session so far, bounded in bytes: who comes late gets the whole picture, only sparser."""

import heapq
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from longtake.server.points import PointChunk
from longtake.types import MovedSpan

MOST_BYTES = 20_000_000
_CHUNK_BYTES = 512
"""What a chunk takes beside its rows, about."""
_FEWEST = 8
"""A chunk that would have fewer points is left out."""
_FILL = 0.75
"""Of the bytes, once it was full; until the next time new chunks stay whole."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedChunk:
    """A chunk with its number in the session, and where it is now."""

    sequence: int
    chunk: PointChunk
    world_from_chunk: Float[np.ndarray, "4 4"]
    """The pose of its camera; a similarity once its window was moved."""
    version: int
    """Of the last correction that the pose takes into account; 0 where there was none."""
    num_halvings: int = 0


class PointHistory:
    """Chunks by number. When there are too many bytes, the densest lose half of their points, oldest first.

    Safe for threads.
    """

    def __init__(self, most_bytes: int = MOST_BYTES, *, version: int = 0) -> None:
        """Of a session that was corrected so often before."""
        self._most_bytes = most_bytes
        self._placed: dict[int, PlacedChunk] = {}
        self._order: list[int] = []
        self._next = self._num_points = self._num_bytes = 0
        self._version = version
        self._lock = threading.Lock()

    @property
    def next_sequence(self) -> int:
        return self._next

    @property
    def num_points(self) -> int:
        return self._num_points

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def add(self, chunk: PointChunk, world_from_camera: Float[np.ndarray, "4 4"], version: int | None = None) -> None:
        """Number a chunk and keep it; `version` is of the last correction that the pose takes into account.

        That is the last one here unless it is said.
        """
        with self._lock:
            of = self._version if version is None else version
            self._put(PlacedChunk(sequence=self._next, chunk=chunk, world_from_chunk=world_from_camera, version=of))
            self._order.append(self._next)
            self._next += 1
            if self._num_bytes > self._most_bytes:
                self._thin()

    def move(self, version: int, spans: Sequence[MovedSpan]) -> None:
        """Take over where earlier frames are now."""
        with self._lock:
            self._version = version
            for sequence, placed in self._placed.items():
                if placed.version >= version:
                    continue
                for span in spans:
                    if span.first_frame <= placed.chunk.frame <= span.last_frame:
                        pose = span.now_from_before.double().numpy() @ placed.world_from_chunk
                        self._placed[sequence] = placed = replace(placed, world_from_chunk=pose)

    def newest_within(self, first: int, stop: int) -> PlacedChunk | None:
        """The chunk of the highest number from `first` on and below `stop`; some may have been left out."""
        with self._lock:
            place = bisect_left(self._order, stop) - 1
            if place < 0 or self._order[place] < first:
                return None
            placed = self._placed[self._order[place]]
            return replace(placed, version=max(placed.version, self._version))

    def holds(self, frame: int) -> bool:
        """Whether there are points of this frame."""
        with self._lock:
            return any(placed.chunk.frame == frame for placed in self._placed.values())

    def clear(self) -> None:
        """Let go of all; numbers go on."""
        with self._lock:
            self._placed, self._order = {}, []
            self._num_points = self._num_bytes = 0

    def _put(self, placed: PlacedChunk) -> None:
        self._placed[placed.sequence] = placed
        self._num_points += len(placed.chunk)
        self._num_bytes += placed.chunk.rows.nbytes + _CHUNK_BYTES

    def _take_out(self, sequence: int) -> PlacedChunk:
        placed = self._placed.pop(sequence)
        self._num_points -= len(placed.chunk)
        self._num_bytes -= placed.chunk.rows.nbytes + _CHUNK_BYTES
        return placed

    def _thin(self) -> None:
        waiting = [(placed.num_halvings, sequence) for sequence, placed in self._placed.items()]
        heapq.heapify(waiting)
        while self._num_bytes > self._most_bytes * _FILL:
            halvings, sequence = heapq.heappop(waiting)
            placed = self._take_out(sequence)
            half = placed.chunk.first(len(placed.chunk) // 2)
            if len(half) >= _FEWEST:
                self._put(replace(placed, chunk=half, num_halvings=halvings + 1))
                heapq.heappush(waiting, (halvings + 1, sequence))
        self._order = sorted(self._placed)
