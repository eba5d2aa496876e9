"""One session behind the server, by its id: what may be asked of it, from any thread.

works      frames and questions that wait for the worker
stepping   what the worker does for each
life       where the session is, in memory or on disk, and what is kept of it
"""

import logging
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from longtake.errors import BusyError, CancelledWorkError
from longtake.language.question_grammar import known_ids, question_ids
from longtake.pipeline.scheduler import Work, WorkKind
from longtake.runtime.steps import LoopUse
from longtake.server.conversation import Conversation
from longtake.server.events import EventLog
from longtake.server.life import Life
from longtake.server.machine import Machine, PushedFrame, SessionState, StepResult
from longtake.server.notes import session_notes
from longtake.server.pose_log import tum_lines
from longtake.server.problems import NotNowError, RequestError, without_place
from longtake.server.recorder import StepListener
from longtake.server.shelf import CONVERSATION_NAME, POSES_NAME, TAKE_NAME, Recorded, SessionRecord, Shelf
from longtake.server.spec import Delivery
from longtake.server.stepping import Inquiry, Stepping
from longtake.server.view import SessionView
from longtake.server.watches import Watch, Watches
from longtake.server.webhooks import require_webhook
from longtake.server.works import UnderWay, Works
from longtake.video.addresses import shown_address

_log = logging.getLogger(__name__)
_REMOVE_AGAIN_S = 60.0
"""After which a session that was too old, and could not be removed, may be again."""


class ServedSession:
    """Its methods return at once, with a future; all that changes it happens in the worker's thread, in turn."""

    def __init__(self, id: str, shelf: Shelf, record: SessionRecord, machine: Machine, *, is_new: bool) -> None:
        """New, or one that was there before, in another session or another process."""
        self.id, self._machine = id, machine
        self.conversation = Conversation(shelf.folder / CONVERSATION_NAME, machine.writer)
        shown = partial(without_place, sessions=shelf.folder.parent)
        self.events = EventLog(
            first_id=record.next_event, keep=self.conversation.hear, observe=partial(machine.observe, id), shown=shown
        )
        self._life = Life(id, shelf, record, machine, self.events)
        self._works = Works(machine.scheduler, machine.settings.limits)
        self._watches = Watches(record.watches)
        self._stepping = Stepping(self._life, self._works, self._watches, self.events, lull=machine.lull)
        self.view = SessionView(
            id,
            machine.views,
            take=shelf.folder / TAKE_NAME,
            recorded=lambda: self.recorded,
            lacks_past=record.num_frames > 0,
        )
        """What those who watch are sent."""
        self.listen(self.view.take)
        self._problem: str | None = None
        self._door = threading.RLock()
        """Held from when a frame or a question is let in until it is under way."""
        self._rests_from_s = 0.0
        """When it may leave memory again, after it could not be saved."""
        self.removable_from_s = 0.0
        """When to remove it again for its age, after that failed."""
        self._tell_beginning(is_new=is_new)

    @property
    def record(self) -> SessionRecord:
        """As it is now; its folder has that of the last save."""
        return self._life.record

    @property
    def state(self) -> SessionState:
        if self._life.is_removed:
            return SessionState.CLOSED
        if not self.record.num_frames:
            return SessionState.WAITING
        return SessionState.OPEN if self.is_in_memory else SessionState.SAVED

    @property
    def last(self) -> StepResult | None:
        """Of the newest frame."""
        return self._life.last

    @property
    def lost(self) -> tuple[int, int] | None:
        """First and last sequence number of frames that a crash took; None where there are none."""
        return self._life.lost

    @property
    def shelf(self) -> Shelf:
        return self._life.shelf

    @property
    def recorded(self) -> Recorded:
        """What there is of its take."""
        return self._life.recorded

    @property
    def loops(self) -> LoopUse | None:
        """What it has found of loops, on disk as it was saved; None where places are not known again."""
        return self._life.loops

    @property
    def kept_lines(self) -> dict[str, str]:
        """Digests of the lines of its take while it is on disk alone."""
        return self._life.kept_lines

    def poses(self) -> tuple[int, str]:
        """The last correction, and all poses by it in the format of TUM; waits until all that was taken is recorded."""
        while True:
            self.settle()
            recorded = self.recorded
            lines = tum_lines(self.shelf.folder / POSES_NAME, recorded.corrections, self._life.kept_poses)
            self.settle()
            if self.recorded.version == recorded.version:  # else some of the rows are of another
                return recorded.version, lines

    @property
    def disk_bytes(self) -> int:
        return self.shelf.num_bytes + self.recorded.num_bytes

    @property
    def active_s(self) -> float:
        """When something was last asked of it, in seconds since 1970; no restart makes it younger."""
        return min(self.record.used_s, self._machine.clock())  # before that, where another server's clock was wrong

    @property
    def idle_s(self) -> float:
        """Since when it could have left memory."""
        return self._machine.clock() - max(self.active_s, self._rests_from_s)

    @property
    def unkept_use_s(self) -> float:
        """By how much its last use is later than the disk says."""
        return self._life.unkept_use_s

    @property
    def is_busy(self) -> bool:
        """Whether a frame or a question waits or is under way."""
        return self._works.is_busy

    @property
    def under_way(self) -> "list[Future[Any]]":
        """Of frames and questions that wait or are begun; all that were let in are among them."""
        with self._door:
            return self._works.futures

    @property
    def is_in_memory(self) -> bool:
        return self._life.watcher is not None

    @property
    def num_unsaved(self) -> int:
        """Frames that a crash would take now."""
        return self._life.num_unsaved

    @property
    def holds_room(self) -> bool:
        """Whether its memory is taken, or set aside for it."""
        return self._machine.admission.holds(self.id)

    @property
    def is_paused(self) -> bool:
        return self.record.is_paused

    @property
    def description(self) -> dict[str, Any]:
        """What a client is told of it."""
        record, spec = self.record, self.record.spec
        return {
            "id": self.id,
            "state": self.state.value,
            "source": shown_address(spec.source),
            "title": spec.title,
            "fork_of": record.fork_of,
            "model": spec.model,
            "language": spec.language,
            "memory_bytes": spec.memory_bytes,
            "resident_bytes": record.resident_bytes,
            "fps": spec.fps,
            "delivery": spec.delivery.value,
            "loops": self._loops,
            "version": self.recorded.version,
            "exact": True,
            "created_s": record.created_s,
            "saved_s": record.saved_s if record.number else None,
            "active_s": self.active_s,
            "num_frames": record.num_frames,
            "next_sequence": record.next_sequence,
            "num_unsaved": self.num_unsaved,
            "paused": record.is_paused,
            "finished": record.is_finished,
            "num_recorded": self.recorded.num_frames,
            "recording": self.recorded.stopped is None,
            "lost_frames": None if self.lost is None else list(self.lost),
            "problem": self._problem,
            "unlikeness": record.unlikeness.to_record(),
            "notes": session_notes(record),
            "watches": [watch.description for watch in self._watches.all],
            "webhook_hosts": sorted(self._machine.settings.webhook_hosts),
        }

    @property
    def _loops(self) -> dict[str, Any]:
        """Whether loops are closed and why, how many were, in how many parts the map is, and what all that holds."""
        use = self.loops
        return self.told_loops | ({} if use is None else asdict(use))

    @property
    def told_loops(self) -> dict[str, Any]:
        """Whether loops are closed, and why."""
        return dict(self._machine.networks.loops_of(self.record.spec).told)

    def push(self, frame: PushedFrame) -> "Future[Any]":
        """Let the worker take a frame; the event `input_frame.ack`, `input_frame.dropped` or `error` tells the end."""
        self._require_open()
        if self.is_paused:
            raise NotNowError("paused", "This session is paused; let it go on first.", status=409)

        def make(asked: Sequence[threading.Event]) -> UnderWay:
            begun = threading.Event()
            return UnderWay(Work(self.id, WorkKind.FRAME, self._stepping.take(frame, asked, begun)), begun)

        is_every = self.record.spec.delivery is Delivery.EVERY
        with self._let_in():
            return self._works.submit_frame(make, lambda done: self._frame_ended(frame, done), is_every=is_every)

    def ask(self, id: str, question: str, *, temperature: float = 0.0, max_tokens: int | None = None) -> "Future[Any]":
        """Answer a question about the frames that came before it; its words are events, and the future's result all."""
        self._require_open()
        self.require_question(question, max_tokens)
        begun = threading.Event()
        steps = self._stepping.answer(id, question, temperature, max_tokens, begun=begun)
        with self._let_in():
            return self._works.submit_question(
                id,
                UnderWay(Work(self.id, WorkKind.QUESTION, steps), begun),
                lambda: self._tell_question(id, question),
                lambda done: self._question_ended(id, done),
            )

    def inquire(self, id: str, question: str, max_tokens: int | None, inquiry: Inquiry) -> "Future[Any]":
        """Let the worker do the steps of an inquiry in turn with the session's questions; it leaves no trace."""
        self._require_open()
        self.require_question(question, max_tokens)
        begun = threading.Event()
        work = Work(self.id, WorkKind.QUESTION, self._stepping.inquire(id, inquiry, begun=begun))
        with self._let_in():
            return self._works.submit_question(
                id, UnderWay(work, begun), lambda: None, lambda done: self._question_ended(id, done)
            )

    def listen(self, listener: StepListener) -> None:
        """Let this hear of every step from now on, in the writer's thread: what became known, and what moved."""
        self._life.listeners.append(listener)

    def settle(self) -> None:
        """Return when all frames that were taken are recorded."""
        self._life.settle()

    def tell_problem(self, code: str, message: str) -> None:
        """Of its own source, which ended by it: an unreadable video, an address that does not answer."""
        self._problem = message
        self.events.add("error", code=code, message=message)
        self.events.add("session.updated", problem=message)

    def cancel(self, id: str) -> bool:
        """Give up a question; False where it is not under way."""
        return self._works.cancel(id)

    def note_use(self) -> None:
        """That somebody uses it beside frames and questions, such as who sends or fetches files."""
        self._life.note_use()

    def keep_use(self) -> "Future[Any]":
        """Let the disk say when it was last used."""
        return self._do(self._life.keep_use)

    def has_asked(self, id: str) -> bool:
        """Whether a question of this id is under way, or its answer is still told."""
        if self._works.has_question(id):
            return True
        return any(event.fields.get("response") == id for event in self.events.after(0))

    def save(self) -> "Future[Any]":
        """Write it to disk."""
        return self._do(self._life.save)

    def evict(self) -> "Future[Any]":
        """Let it leave memory, saved; while a question is under way it is saved only."""
        return self._do(self.leave_memory)

    def rest(self) -> None:
        """Let it leave memory, since nobody uses it; what keeps it from being saved is told, and it is tried later."""

        def told(done: "Future[Any]") -> None:
            error = done.exception()
            if error is not None:
                self._rests_from_s = self._machine.clock()
                self._stepping.tell_error(error)

        self.evict().add_done_callback(told)

    def finish(self) -> "Future[Any]":
        """The results still owed; the future's result is a geometry, or None where nothing maps."""
        return self._do(self._stepping.finish)

    def pause(self, *, is_paused: bool) -> "Future[Any]":
        """Take no frames until it goes on; questions are answered."""
        return self._do(lambda: self._pause(is_paused=is_paused))

    def watch(self, watch: Watch) -> "Future[Any]":
        """Let a question stand: `watch.fired` tells when its answer becomes the expected one."""
        self.require_question(watch.question, None)
        self._require_short(watch.expected)
        self._require_sense(watch)
        if watch.webhook is not None:
            require_webhook(watch.webhook, self._machine.settings.webhook_hosts)
        return self._do(lambda: self._change_watches(lambda watches: watches.add(watch)))

    def stop_watching(self, id: str) -> "Future[Any]":
        return self._do(lambda: self._change_watches(lambda watches: watches.remove(id)))

    def close(self) -> "Future[Any]":
        """End it, and remove all that is on disk."""
        self.give_up()
        return self._do(self._close)

    def give_up(self) -> None:
        """Cancel all frames and questions that wait or are under way."""
        self._works.give_up()

    def copy_to(self, shelf: Shelf) -> "Future[Any]":
        """Save it, and write the same as another session's folder; the future's result is its record."""
        return self._do(lambda: self._life.copy_to(shelf))

    def leave_memory(self) -> None:
        """Save it and let go of its memory; called by the worker. One with questions under way is saved and stays."""
        if self._works.num_questions:
            self._life.save()
            return
        self._life.leave_memory()
        self.view.let_go()

    def require_question(self, question: str, max_tokens: int | None) -> None:
        """Refuse one that cannot be asked."""
        spec, most = self.record.spec, self._machine.settings.limits.question_chars
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

    @contextmanager
    def _let_in(self) -> Iterator[None]:
        """For a frame or a question; a server that is shutting down waits for those let in, and refuses others."""
        with self._door:
            self._machine.require_going_on()
            self._life.note_use()
            yield

    def _require_open(self) -> None:
        if self._life.is_removed:
            raise RequestError("unknown_session", "This session was closed; open another.", status=404)

    def _require_short(self, expected: str) -> None:
        most = self._machine.settings.limits.expected_chars
        if len(expected) > most:
            raise RequestError(
                "bad_watch", f"Expected the answer to wait for in at most {most} characters, but got {len(expected)}."
            )

    def _require_sense(self, watch: Watch) -> None:
        """Refuse a standing question that could never be told of."""
        language = self._machine.networks.language_named(self.record.spec.language)
        if language is not None and language.tokenizer is not None:
            question_ids(watch.question, language.tokenizer, language.known)
            known_ids(watch.expected, language.tokenizer, language.known)
        if self.record.is_finished:
            raise RequestError(
                "finished", "This session has ended: no frame comes that it could be asked of.", status=409
            )

    def _do(self, action: Callable[[], Any]) -> "Future[Any]":
        """Call this in the worker's thread, in turn with the frames."""

        def steps() -> Generator[None, None, Any]:
            yield
            return action()

        self._require_open()
        return self._machine.scheduler.submit(Work(self.id, WorkKind.FRAME, steps()))

    def _frame_ended(self, frame: PushedFrame, done: "Future[Any]") -> None:
        error = done.exception()
        if isinstance(error, CancelledWorkError) and frame.sequence < self.record.next_sequence:
            return  # it was taken; a standing question after it was given up
        if isinstance(error, NotNowError | BusyError) and not self.record.spec.is_pushed:
            return  # its own source is told, and tries again
        if isinstance(error, CancelledWorkError):
            self.events.add("input_frame.dropped", sequence=frame.sequence, time_s=frame.time_s)
        elif error is not None:
            self._stepping.tell_error(error, sequence=frame.sequence)

    def _tell_question(self, id: str, question: str) -> None:
        self.events.add("response.created", response=id, question=question)

    def _question_ended(self, id: str, done: "Future[Any]") -> None:
        self._life.note_use()
        error = done.exception()
        if isinstance(error, CancelledWorkError):
            self.events.add("response.cancelled", response=id)
        elif error is not None:
            self._stepping.tell_error(error, response=id)

    def _tell_beginning(self, *, is_new: bool) -> None:
        if is_new:
            self.events.add("session.created", next_sequence=0)
        else:
            lost = None if self.lost is None else list(self.lost)
            self.events.add("session.resumed", next_sequence=self.record.next_sequence, lost_frames=lost)

    def _pause(self, *, is_paused: bool) -> None:
        self._life.change(is_paused=is_paused)
        self.events.add("session.updated", paused=is_paused)

    def _change_watches(self, change: Callable[[Watches], None]) -> None:
        """Tried on others first: those that stand change once the disk has what they become."""
        changed = Watches(self._watches.all)
        change(changed)
        self._life.change(watches=changed.all)
        change(self._watches)
        self.events.add("session.updated", watches=[watch.description for watch in self._watches.all])

    def _close(self) -> None:
        """All of it, or nothing where the disk refuses."""
        try:
            self._life.remove()
        except OSError as error:
            _log.warning("not removed: %s", error, extra={"session": self.id})
            self.removable_from_s = self._machine.clock() + _REMOVE_AGAIN_S
            raise RequestError(
                "storage",
                f"The server's disk does not let this session be removed ({error.strerror or error}): it is still "
                "there and goes on, but frames and questions that waited were given up; try again, or tell the "
                "server's operator.",
                status=507,
            ) from error
        self.view.close()
        self.events.add("session.closed")
