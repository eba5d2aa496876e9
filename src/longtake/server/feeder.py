"""A session's own source: its frames are pushed by a thread of the server, each when the one before was taken."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import numpy as np
from jaxtyping import UInt8

from longtake.api.video import frame_sampling
from longtake.errors import BusyError, CancelledWorkError, LongtakeError
from longtake.server.machine import PushedFrame
from longtake.server.problems import NotNowError, problem_of
from longtake.server.session import ServedSession
from longtake.server.shelf import VIDEO_NAME
from longtake.server.spec import UPLOAD
from longtake.video.reading import Source
from longtake.video.source import SourceOptions, open_source

_log = logging.getLogger(__name__)
_PATIENCE_S = 0.2


class Feeder:
    """Runs from where the session is to the end of the source; a session that is paused waits."""

    def __init__(self, session: ServedSession, on_end: Callable[["Feeder"], None]) -> None:
        """`on_end` is called in its thread, last."""
        self._session, self._on_end = session, on_end
        self._stopped = threading.Event()
        self._source: Source | None = None
        self._thread = threading.Thread(target=self._run, name=f"longtake-feed-{session.id}", daemon=True)

    @property
    def session_id(self) -> str:
        return self._session.id

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the current frame."""
        self._stopped.set()
        if self._source is not None:
            self._source.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._feed()
        except CancelledWorkError:
            _log.info("closed while it was fed", extra={"session": self._session.id})
        except Exception as error:  # noqa: BLE001 - told and logged, whatever it is: nobody waits for this thread
            self._tell(error)
        finally:
            self._on_end(self)

    def _tell(self, error: Exception) -> None:
        problem = problem_of(error)
        if problem.code == "draining":
            return  # it goes on when the server is back
        if not isinstance(error, LongtakeError):
            _log.error("not fed any more", extra={"session": self._session.id}, exc_info=error)
        self._session.tell_problem(problem.code, self._shown(problem.message))

    def _feed(self) -> None:
        session, record = self._session, self._session.record
        path = session.shelf.folder / VIDEO_NAME
        name = str(path) if record.spec.source == UPLOAD else record.spec.source
        self._source = open_source(name, frame_sampling(None, None, record.spec.fps, stride=1), SourceOptions())
        for frame in self._source.frames(record.next_sequence):
            if frame.index < record.next_sequence:
                continue
            if self._stopped.is_set() or session.record.is_finished:
                return
            if frame.image is None:
                session.events.add(
                    "input_frame.unreadable", sequence=frame.index, message=self._shown(frame.problem or "")
                )
                continue
            self._push(frame.index, frame.timestamp_s, frame.image)
        self._do(session.finish)

    def _shown(self, sentence: str) -> str:
        """Without the place where the server has a video, which is nothing to a client."""
        path, shown = str(self._session.shelf.folder / VIDEO_NAME), "the uploaded video"
        return sentence.replace(f"a video in {path}", "the uploaded file to be a video").replace(path, shown)

    def _push(self, index: int, time_s: float, picture: UInt8[np.ndarray, "height width 3"]) -> None:
        """Return when it is taken, or the session has ended or is to be fed no more.

        Only the worker knows whether a session is paused when a frame's turn comes; what it refuses is pushed again.
        """
        frame = PushedFrame(index, time_s, picture)
        while not self._stopped.is_set() and not self._session.record.is_finished:
            if self._session.is_paused:
                self._stopped.wait(_PATIENCE_S)
                continue
            with suppress(NotNowError):
                self._do(lambda: self._session.push(frame))
                return

    def _do(self, work: Callable[[], "Future[Any]"]) -> None:
        """Return when it is done, or the session is to be fed no more: one on disk waits until there is room for it."""
        while not self._stopped.is_set():
            try:
                work().result()
            except BusyError:
                self._stopped.wait(_PATIENCE_S)
            else:
                return
