"""What viewers of a session can be sent: its points so far, and what it sees now.

The worker says what it took and what became known, and goes on at once; the rest happens in the server's view thread.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from longtake.api.geometry_session import GeometrySession
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.server.machine import PushedFrame
from longtake.server.point_history import PointHistory
from longtake.server.points import PointMaker
from longtake.server.previews import KnownDepth, Snapshot, small_picture
from longtake.server.take_points import chunks_of_take, last_seen
from longtake.server.view_thread import ViewThread
from longtake.takes.header import is_take
from longtake.types import Geometry, MovedSpan
from longtake.video.resize import Resized

_MOST_UNKNOWN = 64
"""Pictures that wait for the depth of their frames; a window's first frames are answered together."""
_UNWATCHED_EVERY = 4
"""One frame in so many is looked at for who may come: neighbours show the same, and the worker is to have the time."""
Listener = Callable[[], None]
Resize = Callable[[np.ndarray], Resized]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TakenFrame:
    """A frame that a session took."""

    index: int
    """Its place among the frames that were taken, from 0."""
    time_s: float
    picture: UInt8[np.ndarray, "height width 3"]
    resize: Resize | None
    """What the network saw of a picture; None where nothing maps."""


def taken_frame(index: int, frame: PushedFrame, mapping: GeometrySession | None) -> TakenFrame:
    """The frame of this index, for the view of a session that may map."""
    resize = None if mapping is None else mapping.as_seen
    return TakenFrame(index=index, time_s=frame.time_s, picture=frame.picture, resize=resize)


class SessionView:
    """Of one session. `take` and `let_go` are called by the worker, the rest by any thread."""

    def __init__(self, session: str, thread: ViewThread, *, take: Path | None = None, lacks_past: bool = False) -> None:
        """`take` is where the session's final frames lie on disk, of which its past is made where that is not here."""
        self.points = PointHistory()
        self._session, self._thread, self._take = session, thread, take
        self._lacks_past = lacks_past
        self._maker = PointMaker()
        self._unknown: dict[int, _Seen] = {}
        self._moves: deque[tuple[int, int, tuple[MovedSpan, ...]]] = deque()
        self._num_steps = 0
        self._snapshot: Snapshot | None = None
        self._passed_over: Callable[[], None] | None = None
        self._listeners: list[Listener] = []
        self._lock, self._making = threading.Lock(), threading.Lock()

    @property
    def snapshot(self) -> Snapshot | None:
        """What is seen now; None before the first frame."""
        return self._snapshot

    @property
    def num_listeners(self) -> int:
        with self._lock:
            return len(self._listeners)

    def listen(self, listener: Listener) -> None:
        """Call this, in another thread, whenever there is something new; a past that is not here is fetched."""
        with self._lock:
            if listener not in self._listeners:
                self._listeners.append(listener)
            is_due, self._lacks_past = self._lacks_past and self._take is not None, False
            newest, self._passed_over = self._passed_over, None
        if newest is not None:
            self._thread.submit(self._session, newest)
        if is_due:
            self._thread.submit_steps(self._session, self._recall())

    def stop_listening(self, listener: Listener) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def take(self, geometry: Geometry | None, frame: TakenFrame | None = None) -> None:
        """What became known with a frame that was taken; without one, what is known when no more come.

        While nobody watches, most frames are passed over, of which the newest is made when somebody comes.
        """
        self._num_steps += 1
        step, known = self._num_steps, None if geometry is None else _on_cpu(geometry)
        if known is not None and known.moved is not None:
            self._moves.append((step, known.moved.version, known.moved.spans))
        make = partial(self._make, step, frame, known)
        with self._lock:
            is_due = bool(self._listeners) or frame is None or step % _UNWATCHED_EVERY == 0
            self._passed_over = None if is_due else make
        if is_due:
            self._thread.submit(self._session, make)

    def let_go(self) -> None:
        """Give up the points, unless somebody watches; who comes later gets those of the take."""
        with self._making, self._lock:
            if not self._listeners:
                self._forget()

    def close(self) -> None:
        with self._making:
            self._forget()

    def _forget(self) -> None:
        self.points.clear()
        self._maker, self._snapshot, self._lacks_past, self._passed_over = PointMaker(), None, True, None
        self._unknown.clear()

    def _make(self, step: int, frame: TakenFrame | None, known: Geometry | None) -> None:
        with self._making:
            snapshot = self._snapshot if frame is None else self._see(frame)
            while self._moves and self._moves[0][0] <= step:
                _, version, spans = self._moves.popleft()
                self.points.move(version, spans)
            for place in range(0 if known is None else len(known)):
                assert known is not None
                newest = self._know(known.frames(place, place + 1))
                if snapshot is not None and newest is not None:
                    snapshot = replace(snapshot, known=newest)
            self._snapshot = snapshot
        self._tell()

    def _see(self, frame: TakenFrame) -> Snapshot:
        if frame.resize is not None:
            self._unknown[frame.index] = _Seen.of(frame.resize(frame.picture))
            while len(self._unknown) > _MOST_UNKNOWN:
                self._unknown.pop(next(iter(self._unknown)))
        known = None if self._snapshot is None else self._snapshot.known
        return Snapshot(frame=frame.index, time_s=frame.time_s, image=small_picture(frame.picture), known=known)

    def _know(self, geometry: Geometry) -> KnownDepth | None:
        """Add the points of a frame; None where its picture was left out."""
        seen = self._unknown.pop(geometry.frame_index[0], None)
        if seen is None:
            return None
        mapped = seen.mapped(geometry)
        chunk = self._maker.chunk(mapped)
        if chunk is not None:
            self.points.add(chunk, mapped.world_from_camera.numpy())
        return KnownDepth(
            frame=mapped.index, time_s=mapped.timestamp_s, depth=mapped.depth, confidence=mapped.confidence
        )

    def _recall(self) -> Iterator[None]:
        """What the take on disk shows: its last frame, then points, a frame at a time."""
        assert self._take is not None
        if not is_take(self._take):
            return
        with self._making:
            maker = self._maker
            self._snapshot = self._snapshot or last_seen(self._take)
        self._tell()
        yield
        for chunk, pose in chunks_of_take(self._take, maker):
            with self._making:
                if self._maker is not maker:
                    return
                if not self.points.holds(chunk.frame):
                    self.points.add(chunk, pose)
            self._tell()
            yield

    def _tell(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """What the network saw of a frame, until its depth is known."""

    image: UInt8[np.ndarray, "height width 3"]
    resized: Resized

    @classmethod
    def of(cls, resized: Resized) -> "_Seen":
        return cls(np.ascontiguousarray(resized.pixels.permute(1, 2, 0).numpy()), resized)

    def mapped(self, geometry: Geometry) -> MappedFrame:
        """The one frame of this geometry, as exports take it."""
        return MappedFrame(
            index=geometry.frame_index[0],
            timestamp_s=geometry.timestamp_s[0],
            status=FrameStatus.OK,
            kind=geometry.kind[0],
            window=geometry.window[0],
            world_from_camera=geometry.world_from_camera[0].double(),
            intrinsics=geometry.intrinsics[0].double(),
            depth=geometry.depth[0].numpy(),
            confidence=geometry.depth_confidence[0].numpy(),
            image=self.image,
            source_image=self.image,
            placement=self.resized.placement,
        )


def _on_cpu(geometry: Geometry) -> Geometry:
    """What points are made of; copied here, for another thread must not wait for a device that is being recorded."""
    moved = geometry.moved
    if moved is not None:
        spans = tuple(replace(span, now_from_before=span.now_from_before.cpu()) for span in moved.spans)
        moved = replace(moved, spans=spans)
    return replace(
        geometry,
        world_from_camera=geometry.world_from_camera.cpu(),
        intrinsics=geometry.intrinsics.float().cpu(),
        depth=geometry.depth.float().cpu(),
        depth_confidence=geometry.depth_confidence.float().cpu(),
        points=None,
        points_confidence=None,
        camera_points=None,
        camera_points_confidence=None,
        descriptor=None,
        moved=moved,
    )
