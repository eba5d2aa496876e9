"""A session's saves: each is of a moment between two steps, and is written while the session goes on.

worker    a moment, held ─▶ goes on with frames
saver                     └▶ copied ─▶ the folder of the save ─▶ the record that names it ─▶ told
writer    what was recorded until then ─┘
"""

from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path

from longtake.server.digests import digests_in, read_digested, write_digested
from longtake.server.events import EventLog
from longtake.server.machine import Machine, StepResult
from longtake.server.recorder import Recorder, SavedRecording, saved_recording
from longtake.server.results import geometry_bytes
from longtake.server.shelf import SessionRecord, Shelf
from longtake.server.standing import Standing
from longtake.server.watchers import Watcher, WriteFolder

LAST_NAME = "last.safetensors"
OnFailure = Callable[[BaseException], None]


def require_whole_save(state: Path) -> None:
    """Refuse a save whose small files are not as they were written; the last result can be done without.

    What networks remember is large, and is compared when it is read.
    """
    for name, digest in digests_in(saved_recording(state)).items():
        if name != LAST_NAME:
            read_digested(state / name, {name: digest})


def read_last(state: Path) -> bytes:
    """The newest frame's result in a save, as it was written."""
    return read_digested(state / LAST_NAME, digests_in(saved_recording(state)))


@dataclass(frozen=True, slots=True, eq=False)
class _Moment:
    """All that is saved of a session, on its own."""

    record: SessionRecord
    num_unsaved: int
    last: StepResult | None
    write_watcher: WriteFolder
    recorded: "Future[SavedRecording]"
    """Written by the writer, in turn with the steps."""


class Saves:
    """Of one session, one at a time. Its methods are called by the worker."""

    def __init__(self, shelf: Shelf, standing: Standing, machine: Machine, events: EventLog) -> None:
        self._shelf, self._standing, self._machine, self._events = shelf, standing, machine, events
        self._under_way: Future[None] | None = None
        self._tries_again_at = 0
        """Frames unsaved when the next save may begin, should this one fail or take long."""

    @property
    def is_due(self) -> bool:
        settings, unsaved = self._machine.settings, self._standing.num_unsaved
        seconds = self._machine.clock() - self._standing.record.saved_s
        is_late = not 0 <= seconds < settings.save_every_s  # before it, where another server's clock was wrong
        is_due = unsaved >= settings.save_every_frames or (unsaved > 0 and is_late)
        return is_due and unsaved >= self._tries_again_at

    def settle(self) -> None:
        """Return when none is under way; how it ended is told to who began it."""
        if self._under_way is not None:
            wait([self._under_way])
            self._under_way = None

    def begin(self, watcher: Watcher, recorder: Recorder, last: StepResult | None) -> "Future[None]":
        """A save under the next number; the one before counts until it is whole.

        A disk that is slower than the frames holds them up here: the save before ends first.
        """
        self.settle()
        self._tries_again_at = self._standing.num_unsaved + self._machine.settings.save_every_frames
        number, folder = self._shelf.make_state_folder()
        write_watcher = watcher.snapshot()
        moment = _Moment(self._standing.record, self._standing.num_unsaved, last, write_watcher, recorder.save(folder))
        self._under_way = self._machine.saver.submit(self._write, moment, number, folder)
        return self._under_way

    def _write(self, moment: _Moment, number: int, folder: Path) -> None:
        """In the saver's thread."""
        self._machine.lull.wait()
        try:
            moment.write_watcher(folder)
        finally:
            wait([moment.recorded])
        self._machine.lull.wait()
        saved, files = moment.recorded.result(), dict[str, str]()
        if moment.last is not None and moment.last.geometry is not None:
            files = write_digested(folder / LAST_NAME, geometry_bytes(moment.last.geometry))
        saved.write(folder, files)
        self._shelf.sync_state_folder(number)
        self._standing.publish(
            moment.record,
            moment.num_unsaved,
            number=number,
            recorded=saved.recorded,
            saved_s=self._machine.clock(),
            next_event=self._events.next_id,
        )
        self._tries_again_at = 0
        self._shelf.remove_other_states(number)
        self._events.add("session.saved", next_sequence=moment.record.next_sequence)
