"""One session behind the server: frames and questions wait here, the worker takes them, events tell what came of it.

A session is in memory or on disk. All that changes it happens in the scheduler's thread, one step at a time.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from longtake.api.live_session import LiveAnswer
from longtake.errors import CancelledWorkError, LongtakeError, MemoryFullError
from longtake.pipeline.admission import Demand
from longtake.pipeline.scheduler import Work, WorkKind
from longtake.runtime.answers import Answer
from longtake.server.events import EventLog
from longtake.server.machine import Machine, PushedFrame, SessionState, StepResult
from longtake.server.pose_log import PoseLog
from longtake.server.problems import RequestError, problem_of
from longtake.server.results import answer_record, geometry_bytes, geometry_of
from longtake.server.shelf import POSES_NAME, SessionRecord, Shelf
from longtake.server.spec import Delivery
from longtake.server.telling import tell_geometry
from longtake.server.watchers import Watcher, open_watcher, resume_watcher
from longtake.server.watches import Watch, Watches
from longtake.server.webhooks import require_webhook
from longtake.types import Geometry
from longtake.video.addresses import shown_address

_log = logging.getLogger(__name__)
_LAST_NAME = "last.safetensors"
_LOST_IDS = 1_000_000
"""Event ids that are left out after a crash, since those before it are not known."""


@dataclass(frozen=True, slots=True, eq=False)
class _UnderWay:
    """A frame or a question; one that has begun is not dropped, and frames wait until questions before them have."""

    work: Work
    begun: threading.Event


class ServedSession:
    """A session by its id. Its methods may be called from any thread; they return at once, with a future."""

    def __init__(self, id: str, shelf: Shelf, record: SessionRecord, machine: Machine) -> None:
        self.id, self._shelf, self._record, self._machine = id, shelf, record, machine
        self._watcher: Watcher | None = None
        self._watches = Watches(record.watches)
        self._poses: PoseLog | None = None
        self._is_closed = False
        self._num_unsaved = 0
        self._last: StepResult | None = None
        self._lock = threading.Lock()
        self._waiting: list[_UnderWay] = []
        self._last_frame: Future[Any] | None = None
        self._questions: dict[str, _UnderWay] = {}
        self._active_s = machine.clock()
        taken = shelf.read_taken()
        self.lost = (record.next_sequence, taken - 1) if taken > record.next_sequence else None
        """First and last sequence number of frames that a crash took; None where there are none."""
        was_cut_off = record.number > 0 or self.lost is not None
        first_id = record.next_event + (_LOST_IDS if was_cut_off else 0)
        self.events = EventLog(first_id=first_id, observe=partial(machine.observe, id))
        self._tell_beginning()

    @property
    def record(self) -> SessionRecord:
        """As it is now; its folder has that of the last save."""
        return self._record

    @property
    def state(self) -> SessionState:
        if self._is_closed:
            return SessionState.CLOSED
        is_on_disk = self._watcher is None and self._record.number > 0
        return SessionState.SAVED if is_on_disk else SessionState.OPEN

    @property
    def last(self) -> StepResult | None:
        """Of the newest frame."""
        return self._last

    @property
    def shelf(self) -> Shelf:
        return self._shelf

    @property
    def active_s(self) -> float:
        """When something was last asked of it, in seconds since 1970."""
        return self._active_s

    @property
    def is_busy(self) -> bool:
        """Whether a frame or a question waits or is under way."""
        with self._lock:
            return bool(self._waiting or self._questions)

    @property
    def is_in_memory(self) -> bool:
        return self._watcher is not None

    @property
    def holds_room(self) -> bool:
        """Whether its memory is taken, or set aside for it."""
        return self._machine.admission.holds(self.id)

    @property
    def is_paused(self) -> bool:
        return self._record.is_paused

    @property
    def description(self) -> dict[str, Any]:
        """What a client is told of it."""
        record, spec = self._record, self._record.spec
        watcher = self._watcher
        return {
            "id": self.id,
            "state": self.state.value,
            "source": shown_address(spec.source),
            "model": spec.model,
            "language": spec.language,
            "memory_bytes": spec.memory_bytes,
            "resident_bytes": 0 if watcher is None else watcher.num_bytes,
            "fps": spec.fps,
            "delivery": spec.delivery.value,
            "exact": True,
            "created_s": record.created_s,
            "saved_s": record.saved_s if record.number else None,
            "active_s": self._active_s,
            "num_frames": record.num_frames,
            "next_sequence": record.next_sequence,
            "num_unsaved": self._num_unsaved,
            "paused": record.is_paused,
            "finished": record.is_finished,
            "lost_frames": None if self.lost is None else list(self.lost),
            "watches": [watch.description for watch in self._watches.all],
        }

    def push(self, frame: PushedFrame) -> "Future[Any]":
        """Let the worker take a frame; the event `input_frame.ack`, `input_frame.dropped` or `error` tells the end."""
        self._require_open()
        if self._record.is_paused:
            raise RequestError("paused", "This session is paused; let it go on first.", status=409)
        with self._lock:
            is_every = self._record.spec.delivery is Delivery.EVERY
            asked = [question.begun for question in self._questions.values()] if is_every else []
            if len(self._waiting) >= self._machine.settings.limits.most_waiting_frames:
                raise RequestError(
                    "too_many_frames", "Too many frames wait; send one when another is taken.", status=429
                )
            begun = threading.Event()
            work = Work(self.id, WorkKind.FRAME, self._take(frame, asked, begun))
            self._active_s = self._machine.clock()
            older = [] if is_every else [one.work for one in self._waiting if not one.begun.is_set()]
            waiting = _UnderWay(work, begun)
            self._waiting.append(waiting)
            self._last_frame = work.done
        for dropped in older:
            self._machine.scheduler.cancel(dropped)
        work.done.add_done_callback(lambda done: self._frame_ended(waiting, frame, done))
        return self._machine.scheduler.submit(work)

    def ask(self, id: str, question: str, *, temperature: float = 0.0, max_tokens: int | None = None) -> "Future[Any]":
        """Answer a question about the frames that came before it; its words are events, and the future's result all."""
        self._require_open()
        self._require_question(question, max_tokens)
        begun = threading.Event()
        work = Work(self.id, WorkKind.QUESTION, self._answer(id, question, temperature, max_tokens, begun))
        return self._put_question(
            id, work, begun, lambda: self.events.add("response.created", response=id, question=question)
        )

    def inquire(
        self,
        id: str,
        question: str,
        max_tokens: int | None,
        steps: Callable[[Watcher], Generator[None, None, Any]],
        extra_bytes: int,
    ) -> "Future[Any]":
        """Let the worker do these steps in turn with the session's questions; they leave no trace in it.

        `extra_bytes` are admitted for them, and let go when they end.
        """
        self._require_open()
        self._require_question(question, max_tokens)
        begun = threading.Event()
        work = Work(self.id, WorkKind.QUESTION, self._inquiry(id, steps, extra_bytes, begun))
        return self._put_question(id, work, begun, lambda: None)

    def _put_question(self, id: str, work: Work, begun: threading.Event, tell: Callable[[], object]) -> "Future[Any]":
        with self._lock:
            if id in self._questions:
                return self._questions[id].work.done
            if len(self._questions) >= self._machine.settings.limits.questions_at_once:
                raise RequestError(
                    "too_many_questions",
                    f"Expected at most {self._machine.settings.limits.questions_at_once} questions at once; wait for "
                    "an answer.",
                    status=429,
                )
            self._questions[id] = _UnderWay(work, begun)
            self._active_s = self._machine.clock()
            after = self._last_frame
        tell()
        work.done.add_done_callback(lambda done: self._question_ended(id, done))
        return self._machine.scheduler.submit(work, after=after)

    def cancel(self, id: str) -> bool:
        """Give up a question; False where it is not under way."""
        with self._lock:
            question = self._questions.get(id)
        if question is None:
            return False
        self._machine.scheduler.cancel(question.work)
        return True

    def has_asked(self, id: str) -> bool:
        """Whether a question of this id is under way, or its answer is still told."""
        with self._lock:
            if id in self._questions:
                return True
        return any(event.fields.get("response") == id for event in self.events.after(0))

    def save(self) -> "Future[Any]":
        """Write it to disk."""
        return self._do(self._save)

    def evict(self) -> "Future[Any]":
        """Let it leave memory, saved; nothing happens while a question is under way."""
        return self._do(self.leave_memory)

    def finish(self) -> "Future[Any]":
        """The results still owed; the future's result is a geometry, or None where nothing maps."""
        return self._do(self._finish)

    def pause(self, *, is_paused: bool) -> "Future[Any]":
        """Take no frames until it goes on; questions are answered."""
        return self._do(lambda: self._pause(is_paused=is_paused))

    def watch(self, watch: Watch) -> "Future[Any]":
        """Let a question stand: `watch.fired` tells when its answer becomes the expected one."""
        self._require_question(watch.question, None)
        if watch.webhook is not None:
            require_webhook(watch.webhook, self._machine.settings.webhook_hosts)
        return self._do(lambda: self._change_watches(lambda: self._watches.add(watch)))

    def stop_watching(self, id: str) -> "Future[Any]":
        return self._do(lambda: self._change_watches(lambda: self._watches.remove(id)))

    def close(self) -> "Future[Any]":
        """End it, and remove all that is on disk."""
        self.give_up()
        return self._do(self._close)

    def give_up(self) -> None:
        """Cancel all frames and questions that wait or are under way."""
        with self._lock:
            given_up = [*self._waiting, *self._questions.values()]
        for one in given_up:
            self._machine.scheduler.cancel(one.work)

    @property
    def under_way(self) -> "list[Future[Any]]":
        """Of frames and questions that wait or are begun."""
        with self._lock:
            return [one.work.done for one in (*self._waiting, *self._questions.values())]

    def copy_to(self, shelf: Shelf) -> "Future[Any]":
        """Save it, and write the same as another session's folder; the future's result is its record."""
        return self._do(lambda: self._copy(shelf))

    def leave_memory(self) -> None:
        """Save it and let go of its memory; called by the worker. One with questions under way stays."""
        if self._questions:
            return
        if self._watcher is None:
            self._machine.admission.release(self.id)
            return
        if self._record.num_frames:
            self._save()
        self._let_go()
        self.events.add("session.evicted")

    def _require_open(self) -> None:
        if self._is_closed:
            raise RequestError("unknown_session", "This session was closed; open another.", status=404)

    def _require_question(self, question: str, max_tokens: int | None) -> None:
        spec, most = self._record.spec, self._machine.settings.limits.question_chars
        if spec.language is None:
            raise RequestError(
                "wrong_kind", "This session maps and has no language model; open one with both.", status=409
            )
        if not question.strip() or len(question) > most:
            raise RequestError("bad_question", f"Expected a question of 1 to {most} characters.")
        if max_tokens is not None and not 1 <= max_tokens <= spec.max_tokens:
            raise RequestError(
                "bad_question", f"Expected max_tokens from 1 to {spec.max_tokens}, as it was opened with."
            )

    def _do(self, action: Callable[[], Any]) -> "Future[Any]":
        """Call this in the worker's thread, in turn with the frames."""

        def steps() -> Generator[None, None, Any]:
            yield
            return action()

        self._require_open()
        return self._machine.scheduler.submit(Work(self.id, WorkKind.FRAME, steps()))

    def _frame_ended(self, waiting: _UnderWay, frame: PushedFrame, done: "Future[Any]") -> None:
        with self._lock:
            self._waiting.remove(waiting)
        error = done.exception()
        if isinstance(error, CancelledWorkError) and frame.sequence < self._record.next_sequence:
            return  # it was taken; a standing question after it was given up
        if isinstance(error, CancelledWorkError):
            self.events.add("input_frame.dropped", sequence=frame.sequence, time_s=frame.time_s)
        elif error is not None:
            self._tell_error(error, sequence=frame.sequence)

    def _question_ended(self, id: str, done: "Future[Any]") -> None:
        with self._lock:
            self._questions.pop(id).begun.set()
            self._active_s = self._machine.clock()
        error = done.exception()
        if isinstance(error, CancelledWorkError):
            self.events.add("response.cancelled", response=id)
        elif error is not None:
            self._tell_error(error, response=id)

    def _tell_error(self, error: BaseException, **about: Any) -> None:
        if not isinstance(error, LongtakeError):
            _log.error("failed", extra={"session": self.id}, exc_info=error)
        self.events.add("error", **problem_of(error).record, **about)

    def _tell_beginning(self) -> None:
        if self._record.number or self.lost is not None:
            self.events.add(
                "session.resumed",
                next_sequence=self._record.next_sequence,
                lost_frames=None if self.lost is None else list(self.lost),
            )
        else:
            self.events.add("session.created", next_sequence=0)

    def _take(self, frame: PushedFrame, asked: Sequence[threading.Event], begun: threading.Event) -> Iterator[None]:
        """The steps of a frame; it lets questions that came before it begin, so that none is about more than that."""
        while not all(begun.is_set() for begun in asked):
            yield
        begun.set()
        begun_s = time.perf_counter()
        if not self._is_new(frame):
            return
        watcher = self._awake()
        started_s = time.perf_counter()
        geometry = yield from self._step(watcher, frame)
        self._taken(frame, geometry, begun_s, time.perf_counter() - started_s)
        yield from self._look_out(watcher, frame)
        if self._is_save_due:
            self._save()

    def _step(self, watcher: Watcher, frame: PushedFrame) -> Generator[None, None, Geometry | None]:
        """What became known; where questions still read what should leave a full memory, one of them is waited for."""
        while True:
            under_way = len(self._questions)
            try:
                return watcher.step(frame.picture, frame.time_s)
            except MemoryFullError:
                if not under_way:
                    raise
            while len(self._questions) >= under_way:
                yield

    def _look_out(self, watcher: Watcher, frame: PushedFrame) -> Iterator[None]:
        """Ask the standing questions that are due, a word a step, in the time of this session's frames."""
        for watch in self._watches.due(frame.time_s):
            try:
                for piece in watcher.ask(watch.question, 0.0, None):
                    if isinstance(piece, Answer | LiveAnswer) and self._watches.fires(watch, piece.text, frame.time_s):
                        told = answer_record(piece)
                        self.events.add("watch.fired", watch=watch.id, time_s=frame.time_s, **told)
                    yield
            except LongtakeError as error:
                self._tell_error(error, watch=watch.id)

    def _is_new(self, frame: PushedFrame) -> bool:
        """Whether it is the next one; one that was taken before is acknowledged again."""
        expected, spec = self._record.next_sequence, self._record.spec
        if frame.sequence < expected:
            if self._last is None:
                self._awake()
            self.events.add("input_frame.ack", sequence=frame.sequence, duplicate=True)
            return False
        if frame.sequence > expected and spec.is_pushed and spec.delivery is Delivery.EVERY:
            raise RequestError(
                "sequence_gap", f"Expected frame {expected}, but got {frame.sequence}; send them in order.", status=409
            )
        return True

    def _taken(self, frame: PushedFrame, geometry: Geometry | None, begun_s: float, step_s: float) -> None:
        """Count a frame that the watcher took, and tell of it."""
        watcher = self._watcher
        assert watcher is not None
        if self._record.num_frames == 0:
            self._machine.admission.shrink(self.id, watcher.num_bytes)
        self._record = replace(self._record, next_sequence=frame.sequence + 1, num_frames=self._record.num_frames + 1)
        self._num_unsaved += 1
        self._shelf.note_taken(self._record.next_sequence)
        self._last = StepResult(frame.sequence, geometry)
        self.lost = self.lost if self.lost is not None and self._record.next_sequence <= self.lost[1] else None
        if geometry is not None:
            self._know(geometry)
        self.events.add(
            "input_frame.ack",
            sequence=frame.sequence,
            num_frames=self._record.num_frames,
            step_s=step_s,
            wait_s=begun_s - frame.pushed_s,
            overhead_s=time.perf_counter() - begun_s - step_s,
        )

    def _know(self, geometry: Geometry) -> None:
        """Keep and tell poses, and what earlier ones became."""
        if self._poses is not None:
            self._poses.add(geometry)
        tell_geometry(self.events, geometry)

    def _answer(
        self, id: str, question: str, temperature: float, max_tokens: int | None, begun: threading.Event
    ) -> Generator[None, None, dict[str, Any]]:
        """The steps of a question, a word each; from the first one on it is about a moment that has passed."""
        for piece in self._awake().ask(question, temperature, max_tokens):
            begun.set()
            if isinstance(piece, Answer | LiveAnswer):
                told = answer_record(piece)
                self.events.add("response.output_text.done", response=id, **told)
                return told
            self.events.add("response.output_text.delta", response=id, text=piece)
            yield
        raise AssertionError("an answer comes last")

    def _inquiry(
        self,
        id: str,
        steps: Callable[[Watcher], Generator[None, None, Any]],
        extra_bytes: int,
        begun: threading.Event,
    ) -> Generator[None, None, Any]:
        watcher = self._awake()
        self._machine.make_room(id, Demand(num_bytes=extra_bytes, frames_per_s=0.0))
        try:
            with closing(steps(watcher)) as running:
                while True:
                    try:
                        next(running)
                    except StopIteration as end:
                        return end.value
                    begun.set()
                    yield
        finally:
            self._machine.admission.release(id)

    def _awake(self) -> Watcher:
        """The session in memory; from disk where it was there, with the same bits."""
        if self._watcher is not None:
            return self._watcher
        spec, networks = self._record.spec, self._machine.networks
        networks.require_known(spec.model, spec.language)
        self._machine.make_room(self.id, self._demand)
        try:
            model, language = networks.map_named(spec.model), networks.language_named(spec.language)
            if self._record.number:
                watcher = resume_watcher(spec, model, language, self._shelf.state_folder(self._record.number))
            else:
                watcher = open_watcher(spec, model, language)
        except BaseException:
            self._machine.admission.release(self.id)
            raise
        self._come_back(watcher)
        return watcher

    @property
    def _demand(self) -> Demand:
        spec = self._record.spec
        wanted = spec.fps if spec.is_pushed or spec.is_address else None
        return Demand(num_bytes=spec.memory_bytes, frames_per_s=wanted or 0.0)

    def _come_back(self, watcher: Watcher) -> None:
        self._poses = PoseLog(self._shelf.folder / POSES_NAME, self._record.poses)
        self._watcher = watcher
        if not self._record.number:
            return
        if self._record.num_frames:
            self._machine.admission.shrink(self.id, watcher.num_bytes)
        path = self._shelf.state_folder(self._record.number) / _LAST_NAME
        if self._last is None and path.is_file():
            self._last = StepResult(self._record.next_sequence - 1, geometry_of(path.read_bytes()))
        self.events.add("session.resumed", next_sequence=self._record.next_sequence, lost_frames=None)

    @property
    def _is_save_due(self) -> bool:
        settings = self._machine.settings
        is_late = self._machine.clock() - self._record.saved_s >= settings.save_every_s
        return self._num_unsaved >= settings.save_every_frames or (self._num_unsaved > 0 and is_late)

    def _save(self) -> None:
        """A save under the next number; the one before counts until it is whole."""
        watcher = self._watcher
        if watcher is None or not self._record.num_frames:
            return
        number = self._record.number + 1
        self._shelf.write_state(number, self._write_state)
        assert self._poses is not None
        self._write_record(replace(self._record, number=number, poses=self._poses.grown))
        self._shelf.remove_other_states(number)
        self._num_unsaved = 0
        self.events.add("session.saved", next_sequence=self._record.next_sequence)

    def _write_state(self, folder: Path) -> None:
        assert self._watcher is not None
        self._watcher.save(folder)
        if self._last is not None and self._last.geometry is not None:
            (folder / _LAST_NAME).write_bytes(geometry_bytes(self._last.geometry))

    def _write_record(self, record: SessionRecord) -> None:
        record = replace(record, saved_s=self._machine.clock(), next_event=self.events.next_id)
        self._shelf.write(record)
        self._record = record

    def _let_go(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        if self._poses is not None:
            self._poses.close()
        self._watcher = self._poses = None
        self._machine.admission.release(self.id)

    def _finish(self) -> Geometry | None:
        geometry = self._awake().finish()
        if geometry is not None:
            self._know(geometry)
        self._record = replace(self._record, is_finished=True)
        self._num_unsaved += 1
        self._save()
        self.events.add("session.finished")
        return geometry

    def _pause(self, *, is_paused: bool) -> None:
        stored = self._shelf.read()
        self._shelf.write(replace(stored, is_paused=is_paused))
        self._record = replace(self._record, is_paused=is_paused)
        self.events.add("session.updated", paused=is_paused)

    def _change_watches(self, change: Callable[[], None]) -> None:
        """In memory and on disk alike, whatever else is saved."""
        change()
        self._record = replace(self._record, watches=self._watches.all)
        self._shelf.write(replace(self._shelf.read(), watches=self._watches.all))
        self.events.add("session.updated", watches=[watch.description for watch in self._watches.all])

    def _close(self) -> None:
        self._is_closed = True
        self._let_go()
        self._shelf.remove()
        self.events.add("session.closed")

    def _copy(self, shelf: Shelf) -> SessionRecord:
        self._save()
        record = replace(self._record, created_s=self._machine.clock(), next_event=1)
        self._shelf.copy_to(shelf, record)
        return record
