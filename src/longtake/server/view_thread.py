"""One thread that makes what viewers are sent, for all sessions of a server; the worker never waits for it."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_log = logging.getLogger(__name__)
_MOST_WAITING = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    session: str
    work: Callable[[], bool]
    """Does some of it; whether more is left."""
    is_droppable: bool


class ViewThread:
    """Takes jobs in turn; of a session that has too many waiting the oldest is dropped. It begins with the first."""

    def __init__(self, pause: Callable[[], None] = lambda: None, *, most_waiting: int = _MOST_WAITING) -> None:
        """`pause` returns when it is a good time for a job; so many jobs of one session may wait."""
        self._pause, self._most_waiting = pause, most_waiting
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_ending = self._is_working = False

    def submit(self, session: str, action: Callable[[], None]) -> None:
        """Call this soon, unless newer ones of the session come before."""

        def whole() -> bool:
            action()
            return False

        self._put(_Job(session, whole, is_droppable=True))

    def submit_steps(self, session: str, steps: Iterator[object]) -> None:
        """Go through these, one at a time between what else there is; never dropped."""
        ended = object()
        self._put(_Job(session, lambda: next(steps, ended) is not ended, is_droppable=False))

    def wait(self, seconds: float = 10.0) -> bool:
        """Until nothing is left to do; False where that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._jobs or self._is_working), seconds)

    def close(self) -> None:
        """Drop what waits, and end."""
        with self._changed:
            self._is_ending = True
            self._jobs.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _put(self, job: _Job) -> None:
        with self._changed:
            if self._is_ending:
                return
            waiting = [one for one in self._jobs if one.session == job.session and one.is_droppable]
            if job.is_droppable and len(waiting) >= self._most_waiting:
                self._jobs.remove(waiting[0])
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="longtake-view", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            self._pause()
            try:
                has_more = job.work()
            except Exception:  # noqa: BLE001 - logged at the edge of the thread; viewers of other sessions are served on
                _log.exception("what viewers of session %s are shown could not be made", job.session)
                continue
            if has_more:
                self._put(job)

    def _next(self) -> _Job | None:
        with self._changed:
            self._is_working = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._jobs or self._is_ending)
            if self._is_ending:
                return None
            self._is_working = True
            return self._jobs.popleft()
