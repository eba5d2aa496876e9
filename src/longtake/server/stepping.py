"""What the worker does for a session, step by step: frames are taken and told of, questions answered word by word."""

import logging
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol, runtime_checkable

from longtake.api.live_session import LiveAnswer
from longtake.errors import LongtakeError, MemoryFullError
from longtake.runtime.answers import Answer
from longtake.server.events import EventLog
from longtake.server.life import Life
from longtake.server.lull import Lull
from longtake.server.machine import PushedFrame
from longtake.server.memory_report import MemoryReport
from longtake.server.notes import judged, session_notes
from longtake.server.problems import NotNowError, RequestError, problem_of
from longtake.server.results import answer_record
from longtake.server.spec import Delivery
from longtake.server.telling import tell_geometry
from longtake.server.watchers import Watcher
from longtake.server.watches import Watches
from longtake.server.works import Works
from longtake.types import Geometry

_log = logging.getLogger(__name__)


@runtime_checkable
class Inquiry(Protocol):
    """More than a question: it has a memory of its own beside the session's."""

    @property
    def num_bytes(self) -> int:
        """Of that memory."""

    def steps(self, watcher: Watcher) -> Generator[None, None, Any]:
        """What the worker does for it, and last what comes of it; it changes nothing in the watcher."""


class Stepping:
    """The steps of frames and questions; each `next` is one, in the worker's thread."""

    def __init__(self, life: Life, works: Works, watches: Watches, events: EventLog, *, lull: Lull) -> None:
        self._life, self._works, self._watches, self._events = life, works, watches, events
        self._lull = lull
        self._memory_report = MemoryReport(events, note=lambda held: life.know(resident_bytes=held))

    def take(self, frame: PushedFrame, asked: Sequence[threading.Event], begun: threading.Event) -> Iterator[None]:
        """Of a frame; it lets questions that came before it begin, so that none is about more than that."""
        while not all(begun.is_set() for begun in asked):
            yield
        begun.set()
        begun_s = time.perf_counter()
        if not self._is_new(frame):
            return
        self._require_wanted()
        watcher = self._life.awake()
        started_s = time.perf_counter()
        geometry = yield from self._step(watcher, frame)
        self._taken(frame, geometry, begun_s, time.perf_counter() - started_s)
        yield from self._look_out(watcher, frame)
        if self._life.is_save_due:
            self._save()

    def _save(self) -> None:
        """What keeps it from being saved is not about the frame, which was taken; it is tried again."""
        try:
            self._life.begin_save(self.tell_error)
        except Exception as error:  # noqa: BLE001 - told and logged, whatever it is, such as a want of memory
            self.tell_error(error)

    def answer(
        self, id: str, question: str, temperature: float, max_tokens: int | None, *, begun: threading.Event
    ) -> Generator[None, None, dict[str, Any]]:
        """Of a question, a word each; from the first one on it is about a moment that has passed."""
        self._require_frames()
        for piece in self._life.awake().ask(question, temperature, max_tokens):
            begun.set()
            if isinstance(piece, Answer | LiveAnswer):
                told = self._told(piece)
                self._events.add("response.output_text.done", response=id, **told)
                return told
            self._events.add("response.output_text.delta", response=id, text=piece)
            yield
        raise AssertionError("an answer comes last")

    def _told(self, answer: Answer | LiveAnswer) -> dict[str, Any]:
        """An answer, each moment with the frame that it ends with."""
        told = answer_record(answer)
        for moment in told["evidence"]:
            moment["frame"] = self._life.frame_at(moment["end_s"])
        return told

    def inquire(self, id: str, inquiry: Inquiry, *, begun: threading.Event) -> Generator[None, None, Any]:
        """Of an inquiry, whose bytes are admitted for it and let go when it ends."""
        watcher = self._life.awake()
        with self._life.room_for(id, inquiry.num_bytes), closing(inquiry.steps(watcher)) as running:
            while True:
                try:
                    next(running)
                except StopIteration as end:
                    return end.value
                begun.set()
                yield

    def finish(self) -> Geometry | None:
        """Tell what was still owed; what keeps it from being saved is told too, and costs nobody the results."""
        self._judge(has_ended=True)
        geometry = self._life.finish()
        self._memory_report.tell_last(self._life.awake())
        try:
            self._life.save()
        except Exception as error:  # noqa: BLE001 - told, whatever it is
            self.tell_error(error)
        if geometry is not None:
            tell_geometry(self._events, geometry)
        self._events.add("session.finished", num_final=self._life.num_final)
        return geometry

    def _judge(self, *, has_ended: bool) -> None:
        """Tell once of each model how far the video is from what it knows."""
        before = self._life.record.unlikeness
        unlikeness = judged(self._life.awake(), before, has_ended=has_ended)
        if unlikeness != before:
            self._life.know(unlikeness=unlikeness)
            notes = session_notes(self._life.record)
            self._events.add("session.updated", unlikeness=unlikeness.to_record(), notes=notes)

    def tell_error(self, error: BaseException, **about: Any) -> None:
        if not isinstance(error, LongtakeError):
            _log.error("failed", extra={"session": self._life.id}, exc_info=error)
        self._events.add("error", **problem_of(error).record, **about)

    def _require_frames(self) -> None:
        if not self._life.record.num_frames:
            raise RequestError("no_pictures", "This session has seen nothing yet; ask it when it has.", status=409)

    def _is_new(self, frame: PushedFrame) -> bool:
        """Whether it is the next one; one that was taken before is acknowledged again."""
        expected, spec = self._life.record.next_sequence, self._life.record.spec
        if frame.sequence < expected:
            if self._life.last is None:
                self._life.awake()
            self._events.add("input_frame.ack", sequence=frame.sequence, duplicate=True)
            return False
        if frame.sequence > expected and spec.is_pushed and spec.delivery is Delivery.EVERY:
            raise RequestError(
                "sequence_gap", f"Expected frame {expected}, but got {frame.sequence}; send them in order.", status=409
            )
        return True

    def _require_wanted(self) -> None:
        """Of a frame; here, where pauses and ends come in turn with frames, and none slips in behind one."""
        record = self._life.record
        if record.is_paused:
            raise NotNowError("paused", "This session is paused; let it go on first.", status=409)
        if record.is_finished and not record.spec.is_pushed:
            raise NotNowError("finished", "This session was ended before its source; open another.", status=409)

    def _step(self, watcher: Watcher, frame: PushedFrame) -> Generator[None, None, Geometry | None]:
        """What became known; where questions still read what should leave a full memory, one of them is waited for."""
        while True:
            under_way = self._works.num_questions
            try:
                with self._lull.computing():
                    return watcher.step(frame.picture, frame.time_s)
            except MemoryFullError:
                if not under_way:
                    raise
            while self._works.num_questions >= under_way:
                yield

    def _taken(self, frame: PushedFrame, geometry: Geometry | None, begun_s: float, step_s: float) -> None:
        """Count a frame that the watcher took, and tell of it."""
        self._life.take(frame, geometry)
        if geometry is not None:
            tell_geometry(self._events, geometry)
        num_frames = self._life.record.num_frames
        self._events.add(
            "input_frame.ack",
            sequence=frame.sequence,
            num_frames=num_frames,
            num_final=self._life.num_final,
            step_s=step_s,
            wait_s=begun_s - frame.pushed_s,
            overhead_s=time.perf_counter() - begun_s - step_s,
        )
        self._memory_report.tell(self._life.awake(), num_frames - 1, frame.time_s)
        self._judge(has_ended=False)

    def _look_out(self, watcher: Watcher, frame: PushedFrame) -> Iterator[None]:
        """Ask the standing questions that are due, a word a step, in the time of this session's frames."""
        for watch in self._watches.due(frame.time_s):
            try:
                for piece in watcher.ask(watch.question, 0.0, None):
                    if isinstance(piece, Answer | LiveAnswer) and self._watches.fires(watch, piece.text, frame.time_s):
                        told = {"question": watch.question, "expected": watch.expected, **self._told(piece)}
                        self._events.add("watch.fired", watch=watch.id, time_s=frame.time_s, **told)
                    yield
            except LongtakeError as error:
                self.tell_error(error, watch=watch.id)
