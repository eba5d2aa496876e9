"""What one viewer has asked for, may still be sent, and is sent next. Lives in the thread of its socket."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from longtake.server.messages import BinaryMessage, Codec, MessageKind, microseconds
from longtake.server.point_history import PlacedChunk, PointHistory
from longtake.server.previews import LARGEST_PX, SMALLEST_PX, Snapshot
from longtake.server.problems import RequestError

MOST_CREDIT = 64_000_000
_MOST_BUDGET = 100_000_000
_USUAL_PX = 320
_PREVIEW_EVERY_S = 0.1
_MOST_GAPS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBudget:
    """What a viewer wants."""

    points: int = 0
    """That it holds at most."""
    previews: bool = False
    preview_px: int = _USUAL_PX

    @classmethod
    def parse(cls, request: dict[str, Any]) -> "ViewBudget":
        """Of a message `view.budget`."""
        previews = request.get("previews", False)
        if not isinstance(previews, bool):
            raise RequestError("bad_message", "Expected the field previews, true or false.")
        preview_px = _whole(request, "preview_px", _USUAL_PX)
        if not SMALLEST_PX <= preview_px <= LARGEST_PX:
            raise RequestError("bad_message", f"Expected preview_px from {SMALLEST_PX} to {LARGEST_PX}.")
        return cls(points=min(_whole(request, "points", 0), _MOST_BUDGET), previews=previews, preview_px=preview_px)


@dataclass(frozen=True, slots=True, eq=False)
class Previews:
    """Messages of a snapshot, as they were wanted when they were made."""

    snapshot: Snapshot
    budget: ViewBudget
    messages: tuple[bytes, ...]


class Viewer:
    """One socket's account. Points that it has not got are spans of chunk numbers; the newest are sent first."""

    def __init__(self, points: PointHistory, clock: Callable[[], float] = time.monotonic) -> None:
        self._points, self._clock = points, clock
        self.budget = ViewBudget()
        self._credit = 0
        self._missing: list[tuple[int, int]] = []
        self._heard_until = 0
        self._previews: list[bytes] = []
        self._shown: Snapshot | None = None
        self._next_preview_s = 0.0
        self._preview_bytes = 1

    @property
    def credit(self) -> int:
        """Bytes that may still be sent."""
        return self._credit

    def set_budget(self, budget: ViewBudget) -> None:
        """With another number of points all that there are come again, as many of each chunk as there is room for."""
        if budget.points != self.budget.points:
            self._missing, self._heard_until = [], 0
        if not budget.previews or budget.preview_px != self.budget.preview_px:
            self._previews, self._shown = [], None
        self.budget = budget

    def add_credit(self, request: dict[str, Any]) -> None:
        """Of a message `credit`."""
        self._credit = min(MOST_CREDIT, self._credit + min(_whole(request, "bytes", None), MOST_CREDIT))

    def preview_wait_s(self, snapshot: Snapshot | None) -> float | None:
        """How long to wait before previews of this are to be made; None where they are not wanted or not paid for."""
        is_wanted = self.budget.previews and snapshot is not None and snapshot is not self._shown
        if not is_wanted or self._previews or self._credit < self._preview_bytes:
            return None
        return max(0.0, self._next_preview_s - self._clock())

    def previews_of(self, snapshot: Snapshot) -> "Previews":
        """What a snapshot shows that was not shown; may be called in another thread, for it takes a while."""
        budget = self.budget
        return Previews(snapshot, budget, tuple(snapshot.messages(budget.preview_px, self._shown)))

    def show(self, previews: "Previews") -> None:
        """Let these be sent next, unless others are wanted meanwhile."""
        self._next_preview_s = self._clock() + _PREVIEW_EVERY_S
        if self.budget.previews and self.budget.preview_px == previews.budget.preview_px:
            self._previews, self._shown = list(previews.messages), previews.snapshot

    def next_message(self) -> bytes | None:
        """What is sent now, paid for: previews before points; None while there is nothing, or no credit for it."""
        if self._previews and self._preview_is_paid():
            return self._paid(self._previews.pop(0))
        return self._next_points()

    def _preview_is_paid(self) -> bool:
        """A preview that is not paid for is given up: what is newest once there is credit takes its place."""
        self._preview_bytes = len(self._previews[0])
        if self._preview_bytes <= self._credit:
            return True
        self._previews, self._shown = [], None
        return False

    def _next_points(self) -> bytes | None:
        if not self.budget.points or not self._credit:
            return None
        self._hear()
        while self._missing:
            first, stop = self._missing[-1]
            placed = self._points.newest_within(first, stop)
            if placed is None:
                self._missing.pop()
                continue
            count = self._share_of(placed)
            message = points_message(placed, count)
            if count and len(message) > self._credit:
                return None
            self._missing[-1] = (first, placed.sequence)
            if count:
                return self._paid(message)
        return None

    def _hear(self) -> None:
        """Chunks that came since the last time are missing too."""
        until = self._points.next_sequence
        if until > self._heard_until:
            if self._missing and self._missing[-1][1] == self._heard_until:
                self._missing[-1] = (self._missing[-1][0], until)
            else:
                self._missing.append((self._heard_until, until))
            self._heard_until = until
        if len(self._missing) > _MOST_GAPS:  # some chunks come again
            self._missing[:2] = [(self._missing[0][0], self._missing[1][1])]

    def _share_of(self, placed: PlacedChunk) -> int:
        """How many points of a chunk, so that all chunks together are within the budget."""
        share = min(1.0, self.budget.points / max(1, self._points.num_points))
        return math.floor(len(placed.chunk) * share)

    def _paid(self, message: bytes) -> bytes:
        self._credit -= len(message)
        return message


def points_message(placed: PlacedChunk, count: int) -> bytes:
    """The first so many points of a chunk."""
    chunk = placed.chunk
    rows = chunk.rows[:count]
    message = BinaryMessage(
        kind=MessageKind.POINTS,
        codec=Codec.POINTS,
        sequence=placed.sequence,
        time_us=microseconds(chunk.time_s),
        fields={
            "frame": chunk.frame,
            "count": len(rows),
            "total": chunk.total,
            "origin": chunk.origin,
            "scale": chunk.scale,
            "pose": placed.world_from_chunk.ravel().tolist(),
            "version": placed.version,
        },
        payload=rows.tobytes(),
    )
    return message.pack()


def _whole(request: dict[str, Any], name: str, usual: int | None) -> int:
    value = request.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RequestError("bad_message", f"Expected the field {name} as a whole number of 0 or more.")
    return value
