"""What viewers of a session can be sent: its points so far, and what it sees now.

It hears of each step where that is recorded, which goes on at once; the rest happens in the server's view thread.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from longtake.exports.frame import MappedFrame
from longtake.exports.sink import Correction
from longtake.pipeline.events import Frame, Moved
from longtake.pipeline.map_results import MapResult
from longtake.server.machine import Step
from longtake.server.point_history import PointHistory
from longtake.server.points import PointMaker
from longtake.server.previews import KnownDepth, Snapshot, small_picture
from longtake.server.shelf import Recorded
from longtake.server.take_points import chunks_of_take, last_seen
from longtake.server.view_thread import ViewThread
from longtake.takes.correcting import corrected
from longtake.takes.header import is_take
from longtake.takes.take import Take

_UNWATCHED_EVERY = 4
"""One frame in so many is looked at for who may come: neighbours show the same, and the worker is to have the time."""
Listener = Callable[[], None]


class SessionView:
    """Of one session. `take` is called where steps are recorded, the rest by any thread."""

    def __init__(
        self,
        session: str,
        thread: ViewThread,
        *,
        take: Path | None = None,
        recorded: Callable[[], Recorded] = Recorded,
        lacks_past: bool = False,
    ) -> None:
        """`take` is where the session's final frames lie on disk, of which its past is made where that is not here.

        `recorded` says what became of them since, never later than this view hears of it.
        """
        self.points = PointHistory(version=recorded().version)
        self._past = _Past(recorded)
        self._session, self._thread, self._take = session, thread, take
        self._lacks_past = lacks_past
        self._maker = PointMaker()
        self._moves: deque[tuple[int, Correction]] = deque()
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

    def take(self, step: Step, results: Sequence[MapResult]) -> None:
        """A frame that was taken, what became known and what moved; without a frame, when no more come.

        While nobody watches, most frames are passed over, of which the newest is made when somebody comes.
        """
        self._num_steps += 1
        for result in results:
            if isinstance(result, Moved):
                self._moves.append((self._num_steps, result.correction))
        known = [result.mapped for result in results if isinstance(result, Frame) and result.mapped is not None]
        make = partial(self._make, self._num_steps, step, known)
        with self._lock:
            is_due = bool(self._listeners) or step.frame is None or self._num_steps % _UNWATCHED_EVERY == 0
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

    def _make(self, number: int, step: Step, known: Sequence[MappedFrame]) -> None:
        with self._making:
            snapshot = self._seen(step)
            while self._moves and self._moves[0][0] <= number:
                _, correction = self._moves.popleft()
                self.points.move(correction.version, correction.spans)
                if _moves_final(correction):
                    self._maker.begin_anew()
            for mapped in known:
                chunk = self._maker.chunk(mapped)
                if chunk is not None:
                    self.points.add(chunk, mapped.world_from_camera.numpy())
            if snapshot is not None and known:
                snapshot = replace(snapshot, known=_known_depth(known[-1]))
            self._snapshot = snapshot
        self._tell()

    def _seen(self, step: Step) -> Snapshot | None:
        if step.frame is None:
            return self._snapshot
        known = None if self._snapshot is None else self._snapshot.known
        image = small_picture(step.frame.picture)
        return Snapshot(frame=step.index, time_s=step.frame.time_s, image=image, known=known)

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
        for chunk, pose in chunks_of_take(self._take, maker, as_known=self._past.as_known):
            with self._making:
                if self._maker is not maker:
                    return
                if not self.points.holds(chunk.frame):
                    self.points.add(chunk, pose, self._past.version)
            self._tell()
            yield

    def _tell(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()


class _Past:
    """A take of what was said, with what became of it by now."""

    def __init__(self, recorded: Callable[[], Recorded]) -> None:
        self._recorded = recorded
        self._known: tuple[Take, Recorded, Take] | None = None

    @property
    def version(self) -> int:
        """Of the last correction that was taken into account."""
        return 0 if self._known is None else self._known[1].version

    def as_known(self, said: Take) -> Take:
        recorded = self._recorded()
        if self._known is not None and self._known[0] is said and self._known[1].version == recorded.version:
            return self._known[2]
        known = said if recorded.corrections is None else corrected(said, recorded.corrections)
        self._known = (said, recorded, known)
        return known


def _moves_final(correction: Correction) -> bool:
    """Whether frames move that are not told again one by one."""
    first = correction.frames[0].index if correction.frames else math.inf
    return any(span.first_frame < first for span in correction.spans)


def _known_depth(mapped: MappedFrame) -> KnownDepth:
    return KnownDepth(frame=mapped.index, time_s=mapped.timestamp_s, depth=mapped.depth, confidence=mapped.confidence)
