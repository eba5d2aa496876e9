"""All sessions of a server: opened, found, forked, sent to disk when idle, brought back after a restart."""

import logging
import secrets
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from longtake.errors import BusyError, LongtakeError
from longtake.pipeline.admission import Admission, Demand
from longtake.pipeline.scheduler import Scheduler, Work, WorkKind
from longtake.server.events import SessionEvent
from longtake.server.feeder import Feeder
from longtake.server.logs import log_event
from longtake.server.lull import Lull
from longtake.server.machine import Machine, SessionState, steady_time
from longtake.server.networks import Networks
from longtake.server.observed import Observed
from longtake.server.problems import RequestError, for_clients, without_place
from longtake.server.quota import Quota
from longtake.server.saving import require_whole_save
from longtake.server.session import ServedSession
from longtake.server.settings import ServerSettings
from longtake.server.shelf import VIDEO_NAME, SessionRecord, Shelf, is_session_id, remove_unfinished, shelves
from longtake.server.spec import UPLOAD, SessionSpec
from longtake.server.view_thread import ViewThread
from longtake.server.watchers import require_memory
from longtake.server.webhooks import Webhooks
from longtake.takes.folder_lock import locked

_log = logging.getLogger(__name__)
_LANE = "server"
"""Of what the worker does for no session in particular."""
_TICK_S = 0.5
_KEEP_USE_S = 60.0
"""By how much the disk may be behind in when a session was last used, while nothing else of it is written."""
_LOST_IDS = 1_000_000
"""Event ids that are left out when a server starts, since those that the one before told are not known."""


class Engine:
    """Sessions by id, one worker for all. `with` starts it; leaving saves all and ends it."""

    def __init__(
        self,
        settings: ServerSettings,
        networks: Networks,
        *,
        scheduler: Scheduler | None = None,
        clock: Callable[[], float] = steady_time,
    ) -> None:
        """`clock` gives seconds since 1970, and never jumps: by it sessions are idle, and removed at last."""
        self.settings, self.networks = settings, networks
        self.scheduler = scheduler or Scheduler()
        self.admission = Admission(settings.budget_bytes, frame_s=lambda: self.scheduler.mean_frame_s)
        self._clock = clock
        self.observed = Observed()
        self._webhooks = Webhooks(settings.webhook_hosts, self.observed.count_webhook)
        self.quota = Quota(settings.quota_bytes, lambda: self.disk_bytes)
        self._ending = threading.Event()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="longtake-writer")
        self._saver = ThreadPoolExecutor(1, thread_name_prefix="longtake-saver")
        self._checker = ThreadPoolExecutor(1, thread_name_prefix="longtake-checker")
        lull = Lull()
        self._machine = Machine(
            settings=settings,
            networks=networks,
            scheduler=self.scheduler,
            admission=self.admission,
            make_room=self._make_room,
            writer=self._writer,
            saver=self._saver,
            checker=self._checker,
            quota=self.quota,
            clock=clock,
            lull=lull,
            views=ViewThread(lull.wait),
            observe=self._observe,
            is_ending=self._ending.is_set,
        )
        self._sessions: dict[str, ServedSession] = {}
        self._feeders: dict[str, Feeder] = {}
        self._lock = threading.Lock()
        self._opened = ExitStack()
        self.damaged: dict[str, str] = {}
        """Why sessions on disk cannot be resumed, by id."""

    def __enter__(self) -> "Engine":
        with ExitStack() as opened:
            opened.enter_context(locked(self.settings.folder))
            remove_unfinished(self.settings.folder)
            for id, shelf in shelves(self.settings.folder):
                self._list_again(id, shelf)
            self._opened = opened.pop_all()
        self.scheduler.start()
        for executor in (self._writer, self._saver):
            executor.submit(lambda: None)  # its thread is there from now on
        self._housekeeper = threading.Thread(target=self._keep_house, name="longtake-house", daemon=True)
        for session in self.sessions:
            self._feed_again(session)
        self._housekeeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.drain()

    @property
    def is_draining(self) -> bool:
        return self._ending.is_set()

    @property
    def sessions(self) -> list[ServedSession]:
        """All, oldest first."""
        with self._lock:
            found = list(self._sessions.values())
        return sorted(found, key=lambda session: session.record.created_s)

    def session(self, id: str) -> ServedSession:
        """The session of an id; what is no id is refused as one that is not there."""
        with self._lock:
            found = self._sessions.get(id) if is_session_id(id) else None
        if found is None:
            raise RequestError(
                "unknown_session", "There is no session of this id; GET /v1/sessions lists all.", status=404
            )
        return found

    def open(self, spec: SessionSpec) -> "Future[Any]":
        """Admit a session; the future's result is it. Its first frame takes its memory, which must do for one."""
        self._machine.require_going_on()
        self.networks.require_known(spec.model, spec.language)
        spec.require_modest_world()
        if spec.is_address and not self.settings.allows_addresses:
            raise RequestError(
                "source_forbidden",
                "Expected source as push, upload or world: this server opens no addresses for clients.",
                status=403,
            )
        return self._do(lambda: self._open(spec))

    def close(self, id: str) -> "Future[Any]":
        """End a session and remove what is on disk; where that fails, it goes on, and so does its own source."""
        session = self.session(id)
        was_fed = self._stop_feeding(id)

        def ended(_: "Future[Any]") -> None:
            if session.state is SessionState.CLOSED:
                self._forget(id)
            elif was_fed:
                self.feed(id)

        done = session.close()
        done.add_done_callback(ended)
        return done

    def fork(self, id: str) -> "Future[Any]":
        """Another session that goes on from where this one is, its own source too; the future's result is it."""
        self._machine.require_going_on()
        self.quota.require(self.session(id).disk_bytes)
        new_id = _new_id()
        shelf = Shelf(self.settings.folder / new_id)
        copied, opened = self.session(id).copy_to(shelf), Future[Any]()

        def add(done: "Future[Any]") -> None:
            error = done.exception()
            if error is not None:
                opened.set_exception(error)
            else:
                forked = self._add(ServedSession(new_id, shelf, done.result(), self._machine, is_new=False))
                self._feed_again(forked)
                opened.set_result(forked)

        copied.add_done_callback(add)
        return opened

    def feed(self, id: str) -> None:
        """Let a session's own source run: an uploaded video, a world, an address."""
        session = self.session(id)
        with self._lock:
            is_over = session.record.is_finished or self.is_draining
            if is_over or id in self._feeders or session.record.spec.is_pushed:
                return
            self._feeders[id] = Feeder(session, self._feeding_ended)
            self._feeders[id].start()

    def drain(self) -> None:
        """Take nothing more, save all, end."""
        with self._lock:
            if self._ending.is_set():
                return
            feeders = list(self._feeders.values())
            self._ending.set()
        with self._opened as ending:  # whatever fails: each of these, the last one first, then the folder's lock
            ending.callback(self._machine.views.close)
            ending.callback(self._writer.shutdown)
            ending.callback(self._saver.shutdown)
            ending.callback(self._checker.shutdown)
            ending.callback(self.scheduler.close)
            ending.callback(self._webhooks.close)
            ending.callback(self._housekeeper.join)
            ending.callback(self._save_all)
            for feeder in feeders:
                feeder.stop()
            self._wait_for_works()

    def _save_all(self) -> None:
        leaving: dict[str, Future[Any]] = {}
        for session in self.sessions:
            try:
                leaving[session.id] = session.evict()
            except LongtakeError as error:  # it was closed meanwhile
                _log.info("%s", error, extra={"session": session.id})
        wait(leaving.values())
        for session in self.sessions:
            if session.num_unsaved and session.state is not SessionState.CLOSED:
                why = leaving[session.id].exception() if session.id in leaving else None
                _log.error("%d frames not saved", session.num_unsaved, extra={"session": session.id}, exc_info=why)

    def _wait_for_works(self) -> None:
        """Let frames and questions that were begun end; give up what takes too long."""
        wait([done for session in self.sessions for done in session.under_way], timeout=self.settings.drain_s)
        for session in self.sessions:
            session.give_up()
        wait([done for session in self.sessions for done in session.under_way])

    def keep_house(self) -> None:
        """Send idle sessions to disk, remove those that nobody used for long."""
        now_s = self._clock()
        for session in self.sessions:
            if session.state is SessionState.CLOSED or session.is_busy or session.id in self._feeders:
                continue
            if now_s - session.active_s >= self.settings.retention_s and now_s >= session.removable_from_s:
                self.close(session.id)
            elif session.holds_room and session.idle_s >= self.settings.idle_s:
                session.rest()
            elif session.unkept_use_s >= _KEEP_USE_S:
                session.keep_use()

    @property
    def disk_bytes(self) -> int:
        return sum(session.disk_bytes for session in self.sessions)

    @property
    def num_unsaved_sessions(self) -> int:
        """Whose newest frames the disk does not have."""
        return sum(session.num_unsaved > 0 for session in self.sessions)

    def _observe(self, id: str, event: SessionEvent) -> None:
        self.observed.hear(id, event)
        log_event(id, event)
        if event.type == "watch.fired":
            session = self.session(id)
            self._webhooks.tell(id, session.record.watches, event, session.events)

    def _keep_house(self) -> None:
        while not self._ending.wait(_TICK_S):
            try:
                self.keep_house()
            except LongtakeError as error:  # a session that was closed meanwhile
                _log.info("%s", error)

    def _do(self, action: Callable[[], Any]) -> "Future[Any]":
        def steps() -> Generator[None, None, Any]:
            yield
            return action()

        return self.scheduler.submit(Work(_LANE, WorkKind.FRAME, steps()))

    def _open(self, spec: SessionSpec) -> ServedSession:
        """Admitted before anything is written; its bytes are taken from now on."""
        self.quota.require(spec.memory_bytes)
        id, now_s = _new_id(), self._clock()
        num_bytes = spec.memory_bytes + self.networks.loop_bytes(spec)
        demand = Demand(num_bytes=num_bytes, frames_per_s=(spec.fps or 0.0) if spec.is_pushed else 0.0)
        self._make_room(id, demand)
        shelf = Shelf(self.settings.folder / id)
        record = SessionRecord(spec=spec, created_s=now_s, saved_s=now_s, used_s=now_s)
        try:
            require_memory(spec, *self.networks.loaded(spec.model, spec.language))
            shelf.write(record)
            return self._add(ServedSession(id, shelf, record, self._machine, is_new=True))
        except BaseException:
            self.admission.release(id)
            _remove(shelf)
            raise

    def _make_room(self, id: str, demand: Demand) -> None:
        """Admit a session; where there is no room, those that have been idle longest leave memory for it."""
        spare = sorted(self._spare(id), key=lambda session: session.active_s)
        spare_bytes = sum(self.admission.bytes_of(session.id) for session in spare)
        if self.admission.num_bytes - spare_bytes + demand.num_bytes > self.admission.budget_bytes:
            spare = []  # it would not help
        while True:
            try:
                self.admission.admit(id, demand)
                return
            except BusyError:
                if not spare:
                    raise
            self._send_away(spare.pop(0))

    def _send_away(self, session: ServedSession) -> None:
        """From memory; one that cannot be saved stays, which is no fault of who needs the room."""
        try:
            session.leave_memory()
        except Exception:  # noqa: BLE001 - logged, whatever it is; another is tried
            _log.exception("not saved", extra={"session": session.id})

    def _spare(self, wanted_by: str) -> list[ServedSession]:
        latest_s = self._clock() - self.settings.spare_idle_s
        return [
            session
            for session in self.sessions
            if session.id != wanted_by and session.holds_room and not session.is_busy and session.active_s <= latest_s
        ]

    def _list_again(self, id: str, shelf: Shelf) -> None:
        try:
            record = shelf.read()
            if record.number:
                require_whole_save(shelf.state_folder(record.number))
            record = replace(record, next_event=record.next_event + _LOST_IDS)
            self._keep_ids(id, shelf, record)
            self._add(ServedSession(id, shelf, record, self._machine, is_new=False))
        except LongtakeError as error:
            _log.warning("not resumed: %s", error, extra={"session": id})
            self.damaged[id] = without_place(for_clients(str(error)), self.settings.folder)

    def _keep_ids(self, id: str, shelf: Shelf, record: SessionRecord) -> None:
        """On the disk before any event is told, for a crash that comes before the next save."""
        try:
            shelf.write(record)
        except LongtakeError as error:  # it can be used all the same
            _log.warning("not noted: %s", error, extra={"session": id})

    def _feed_again(self, session: ServedSession) -> None:
        spec = session.record.spec
        if spec.is_world or (spec.source == UPLOAD and (session.shelf.folder / VIDEO_NAME).is_file()):
            self.feed(session.id)

    def _add(self, session: ServedSession) -> ServedSession:
        with self._lock:
            self._sessions[session.id] = session
        return session

    def _stop_feeding(self, id: str) -> bool:
        """Whether its own source ran."""
        with self._lock:
            feeder = self._feeders.pop(id, None)
        if feeder is not None:
            feeder.stop()
        return feeder is not None

    def _feeding_ended(self, feeder: Feeder) -> None:
        with self._lock:
            if self._feeders.get(feeder.session_id) is feeder:
                del self._feeders[feeder.session_id]

    def _forget(self, id: str) -> None:
        with self._lock:
            self._sessions.pop(id, None)
        self.scheduler.forget(id)
        self.admission.release(id)


def _remove(shelf: Shelf) -> None:
    """What was begun of a session that could not be opened, which is told; what keeps it there is logged."""
    try:
        shelf.give_up_name()
    except OSError as error:
        _log.warning("not removed: %s", error, extra={"session": shelf.folder.name})
    shelf.remove_rest()


def _new_id() -> str:
    return secrets.token_hex(8)
