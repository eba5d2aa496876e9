"""A session's life: in memory, on disk, or both, saved under numbers of which one counts.

All of it happens in the worker's thread; saves are written in another.
"""

import logging
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from longtake.errors import InputError, LongtakeError, SavedSessionError
from longtake.pipeline.admission import Demand
from longtake.pipeline.mapper import on_cpu
from longtake.runtime.steps import LoopUse
from longtake.server.events import EventLog
from longtake.server.machine import Machine, PushedFrame, Step, StepResult
from longtake.server.pictures import frame_at
from longtake.server.problems import RequestError, for_clients
from longtake.server.recorder import Desk, Recorder, StepListener, kept_lines, kept_poses
from longtake.server.results import geometry_of
from longtake.server.saving import OnFailure, Saves, read_last
from longtake.server.shelf import PICTURES_NAME, Recorded, SessionRecord, Shelf
from longtake.server.standing import Standing
from longtake.server.watchers import Watcher, judge_by, live_bytes, loop_use, open_watcher, resume_watcher
from longtake.takes.atomic_files import Grown
from longtake.types import Geometry

_log = logging.getLogger(__name__)
_NEWEST_TIMES = 64
"""Of frames whose pictures may not be written yet."""


class Life:
    """What a session is and has: its record, its watcher while it is in memory, its newest result."""

    def __init__(self, id: str, shelf: Shelf, record: SessionRecord, machine: Machine, events: EventLog) -> None:
        self.id, self._machine, self._events = id, machine, events
        self.shelf, self._standing = shelf, Standing(shelf, record)
        self._saves = Saves(shelf, self._standing, machine, events)
        taken = shelf.read_taken()
        self.lost = (record.next_sequence, taken - 1) if taken > record.next_sequence else None
        """First and last sequence number of frames that a crash took; None where there are none."""
        self.last: StepResult | None = None
        """Of the newest frame."""
        self.listeners: list[StepListener] = []
        """Who hears of each step what it made known, wherever the session is in between."""
        self._newest_times: deque[tuple[int, float]] = deque(maxlen=_NEWEST_TIMES)
        self._watcher: Watcher | None = None
        self._recorder: Recorder | None = None
        self._is_removed = self._is_checked = False

    @property
    def record(self) -> SessionRecord:
        """As it is now; its folder has that of the last save."""
        return self._standing.record

    @property
    def num_unsaved(self) -> int:
        """Frames that a crash would take now."""
        return self._standing.num_unsaved

    @property
    def watcher(self) -> Watcher | None:
        """None while it is on disk only, or has seen nothing."""
        return self._watcher

    @property
    def num_final(self) -> int | None:
        """Frames, from the first on, whose results will not change; None where nothing maps, or it is on disk."""
        mapping = None if self._watcher is None else self._watcher.mapping
        return None if mapping is None else mapping.num_final

    @property
    def loops(self) -> LoopUse | None:
        """What it has found of loops, on disk as it was saved; None where places are not known again."""
        watcher = self._watcher
        return self.record.loops if watcher is None else loop_use(watcher)

    @property
    def is_removed(self) -> bool:
        """Whether there is nothing of it any more."""
        return self._is_removed

    @property
    def is_save_due(self) -> bool:
        return self._saves.is_due

    @property
    def recorded(self) -> Recorded:
        """What there is of its take, on disk as it is now or, after a crash, as it was saved."""
        recorder = self._recorder
        return self.record.recorded if recorder is None else recorder.recorded

    @property
    def kept_poses(self) -> Grown | None:
        """How much of the file of poses counts: all of it while the session is in memory, else what was saved."""
        if self._recorder is not None:
            return None
        number = self.record.number
        return kept_poses(self.shelf.state_folder(number)) if number else Grown(num_bytes=0)

    @property
    def kept_lines(self) -> dict[str, str]:
        """Digests of the lines of its take, by their files, while it is on disk alone; none while it is in memory."""
        number = self.record.number
        return {} if self._recorder is not None or not number else kept_lines(self.shelf.state_folder(number))

    def awake(self) -> Watcher:
        """The watcher in memory; from disk where it was there, with the same bits."""
        if self._watcher is not None:
            return self._watcher
        self._require_kept()
        spec, networks = self.record.spec, self._machine.networks
        networks.require_known(spec.model, spec.language)
        self._machine.make_room(self.id, self._demand)
        try:
            watcher = self._new_or_saved()
            if watcher.mapping is not None:
                watcher.mapping.close_loops_by(networks.loops_of(spec))
            judge_by(watcher, networks.familiarity_named(spec.model), networks.familiarity_named(spec.language))
            recorder = self._open_recorder(watcher)
        except BaseException:
            self._machine.admission.release(self.id)
            raise
        self._come_back(watcher, recorder)
        return watcher

    def _new_or_saved(self) -> Watcher:
        spec, networks = self.record.spec, self._machine.networks
        model, language = networks.map_named(spec.model), networks.language_named(spec.language)
        if not self.record.number:
            return open_watcher(spec, model, language)
        try:
            return resume_watcher(spec, model, language, self.shelf.state_folder(self.record.number))
        except InputError as error:
            raise SavedSessionError(for_clients(str(error))) from error

    def take(self, frame: PushedFrame, geometry: Geometry | None) -> None:
        """Count a frame that the watcher took, and keep what became known."""
        assert self._watcher is not None
        if self.record.num_frames == 0:
            self._machine.admission.shrink(self.id, self._bytes_of(self._watcher))
        index = self.record.num_frames
        self._standing.count(next_sequence=frame.sequence + 1, num_frames=index + 1)
        self._newest_times.append((index, frame.time_s))
        self.lost = self.lost if self.lost is not None and self.record.next_sequence <= self.lost[1] else None
        self.last = StepResult(frame.sequence, geometry)
        self._keep(index, frame, geometry)
        try:
            self.shelf.note_taken(self.record.next_sequence)
        except InputError as error:  # the frame was taken
            _log.warning("not noted: %s", error, extra={"session": self.id})

    def frame_at(self, time_s: float) -> int | None:
        """The frame that was taken at this time, mapped or not; None where it has no picture."""
        newest = next((index for index, taken_s in self._newest_times if taken_s == time_s), None)
        return frame_at(self.shelf.folder / PICTURES_NAME, time_s) if newest is None else newest

    def finish(self) -> Geometry | None:
        """The results still owed, to be saved; None where nothing maps."""
        geometry = self.awake().finish()
        self._keep(self.record.num_frames, None, geometry)
        self._standing.count(is_finished=True)
        return geometry

    def save(self) -> None:
        """Return when all is on the disk."""
        self._saves.settle()
        if self._is_savable:
            self._begin_save().result()

    def begin_save(self, on_failure: OnFailure) -> None:
        """Save it while it goes on; `on_failure` is called, in another thread, with what keeps it from being saved."""

        def tell(done: "Future[None]") -> None:
            error = done.exception()
            if error is not None:
                on_failure(error)

        if self._is_savable:
            self._begin_save().add_done_callback(tell)

    def leave_memory(self) -> None:
        """Save it and let go of its memory."""
        if self._watcher is None:
            self._machine.admission.release(self.id)
            self.keep_use()
            return
        self.save()
        self._let_go()
        self._events.add("session.evicted")

    def note_use(self) -> None:
        """That it is used now; may be called in any thread."""
        self._standing.know(used_s=self._machine.clock())

    @property
    def unkept_use_s(self) -> float:
        """By how much the last use is later than the disk says."""
        return self._standing.unkept_use_s

    def keep_use(self) -> None:
        """Let the disk say when it was last used, which saves do too."""
        if self.unkept_use_s <= 0:
            return
        try:
            self._standing.change()
        except LongtakeError as error:  # the next save, or the next use, is another chance
            _log.warning("not noted: %s", error, extra={"session": self.id})

    def know(self, **changes: Any) -> None:
        """Of the record, from now on; on disk with the next save, as the frames are by which it became known."""
        self._standing.know(**changes)

    def change(self, **changes: Any) -> None:
        """On disk and in memory alike, whatever else is saved; what the disk does not take is not changed."""
        self._require_kept()
        self._standing.change(**changes)

    def copy_to(self, shelf: Shelf) -> SessionRecord:
        """Save it, and write the same as another session's folder; returns its record.

        Its events are numbered behind ours: who follows it from its beginning is told that something was before, and no
        finding of its own has the number of one that it brings along.
        """
        self._require_kept()
        self.save()
        now_s = self._machine.clock()
        record = replace(self.record, created_s=now_s, used_s=now_s, next_event=self._events.next_id, fork_of=self.id)
        self.shelf.copy_to(shelf, record)
        return record

    def remove(self) -> None:
        """Let go of all that is on disk and of its memory; what was let in before and comes after finds nothing.

        Where the disk refuses, nothing was let go of: the OSError says so, and it goes on.
        """
        self._saves.settle()
        self.settle()
        self.shelf.give_up_name()
        self._is_removed = True
        self._let_go()
        if not self.shelf.remove_rest():
            _log.warning("some of its files are left; the next start removes them", extra={"session": self.id})

    def _require_kept(self) -> None:
        if self._is_removed:
            raise RequestError("unknown_session", "This session was closed; open another.", status=404)

    @contextmanager
    def room_for(self, id: str, num_bytes: int) -> Iterator[None]:
        """Bytes beside its own, admitted under this id."""
        self._machine.make_room(id, Demand(num_bytes=num_bytes, frames_per_s=0.0))
        try:
            yield
        finally:
            self._machine.admission.release(id)

    def settle(self) -> None:
        """Return when all that was taken so far is recorded; may be called in any thread but the writer's."""
        with suppress(RuntimeError):  # the writer has ended, and with it all that it had to do
            self._machine.writer.submit(lambda: None).result()

    def _keep(self, index: int, frame: PushedFrame | None, geometry: Geometry | None) -> None:
        """Whatever fails here, the watcher took the frame: it counts, and recording stops."""
        assert self._watcher is not None
        assert self._recorder is not None
        mapping = self._watcher.mapping
        try:
            step = Step(
                index=index,
                frame=frame,
                seen=None if mapping is None else mapping.seen,
                geometry=None if geometry is None else on_cpu(geometry),
                num_final=0 if mapping is None else mapping.num_final,
            )
        except Exception as error:  # noqa: BLE001 - logged there
            self._recorder.miss(error)
        else:
            self._recorder.record(step)

    def _open_recorder(self, watcher: Watcher) -> Recorder:
        desk = Desk(
            shelf=self.shelf,
            machine=self._machine,
            events=self._events,
            listeners=self.listeners,
            fps=self.record.spec.fps,
            network=self._machine.networks.identity_named(self.record.spec.model),
        )
        number = self.record.number
        return Recorder(desk, watcher.mapping, self.shelf.state_folder(number) if number else None)

    @property
    def _demand(self) -> Demand:
        spec = self.record.spec
        wanted = spec.fps if spec.is_pushed or spec.is_address else None
        loop_bytes = self._machine.networks.loop_bytes(spec)
        return Demand(num_bytes=spec.memory_bytes + loop_bytes, frames_per_s=wanted or 0.0)

    def _bytes_of(self, watcher: Watcher) -> int:
        """Of keys and values, and the most that places take of frames of its size."""
        size = None if watcher.mapping is None else watcher.mapping.size
        return watcher.num_bytes + (0 if size is None else self._machine.networks.loop_bytes(self.record.spec, size))

    def _come_back(self, watcher: Watcher, recorder: Recorder) -> None:
        self._watcher, self._recorder = watcher, recorder
        if not self.record.number:
            return
        if self.record.num_frames:
            self._machine.admission.shrink(self.id, self._bytes_of(watcher))
        if self.last is None:
            self.last = self._last_saved()
        if not self._is_checked:  # once: what this server wrote since is not in doubt
            self._is_checked = True
            self._machine.checker.submit(recorder.check_pixels)
        self._events.add("session.resumed", next_sequence=self.record.next_sequence, lost_frames=None)

    def _last_saved(self) -> StepResult | None:
        """For who was not told of it; None where it is damaged, for it can be done without."""
        sequence = self.record.next_sequence - 1
        if self.record.spec.model is None:
            return StepResult(sequence, None)
        try:
            return StepResult(sequence, geometry_of(read_last(self.shelf.state_folder(self.record.number))))
        except InputError as error:
            _log.warning("the last result is damaged: %s", error, extra={"session": self.id})
            return None

    @property
    def _is_savable(self) -> bool:
        return self._watcher is not None and self.record.num_frames > 0

    def _begin_save(self) -> "Future[None]":
        assert self._watcher is not None
        assert self._recorder is not None
        self._standing.know(resident_bytes=live_bytes(self._watcher), loops=loop_use(self._watcher))
        return self._saves.begin(self._watcher, self._recorder, self.last)

    def _let_go(self) -> None:
        """Whatever keeps its files from being closed, it is in memory no more; what counts was saved before."""
        parts = (self._recorder, self._watcher)
        self._watcher = self._recorder = None
        self._machine.admission.release(self.id)
        for part in parts:
            try:
                if part is not None:
                    part.close()
            except Exception:  # noqa: BLE001 - logged, whatever it is; the other is closed too
                _log.exception("not closed", extra={"session": self.id})
