"""A session's life: in memory, on disk, or both, saved under numbers of which one counts.

All of it happens in the worker's thread.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from longtake.pipeline.admission import Demand
from longtake.server.events import EventLog
from longtake.server.machine import Machine, StepResult
from longtake.server.pose_log import PoseLog
from longtake.server.results import geometry_bytes, geometry_of
from longtake.server.shelf import POSES_NAME, SessionRecord, Shelf
from longtake.server.watchers import Watcher, open_watcher, resume_watcher
from longtake.types import Geometry

_LAST_NAME = "last.safetensors"


class Life:
    """What a session is and has: its record, its watcher while it is in memory, its newest result."""

    def __init__(self, id: str, shelf: Shelf, record: SessionRecord, machine: Machine, events: EventLog) -> None:
        self.id, self._machine, self._events = id, machine, events
        self.shelf, self.record = shelf, record
        taken = shelf.read_taken()
        self.lost = (record.next_sequence, taken - 1) if taken > record.next_sequence else None
        """First and last sequence number of frames that a crash took; None where there are none."""
        self.last: StepResult | None = None
        """Of the newest frame."""
        self.num_unsaved = 0
        self._watcher: Watcher | None = None
        self._poses: PoseLog | None = None

    @property
    def watcher(self) -> Watcher | None:
        """None while it is on disk only, or has seen nothing."""
        return self._watcher

    @property
    def is_save_due(self) -> bool:
        settings = self._machine.settings
        is_late = self._machine.clock() - self.record.saved_s >= settings.save_every_s
        return self.num_unsaved >= settings.save_every_frames or (self.num_unsaved > 0 and is_late)

    def awake(self) -> Watcher:
        """The watcher in memory; from disk where it was there, with the same bits."""
        if self._watcher is not None:
            return self._watcher
        spec, networks = self.record.spec, self._machine.networks
        networks.require_known(spec.model, spec.language)
        self._machine.make_room(self.id, self._demand)
        try:
            model, language = networks.map_named(spec.model), networks.language_named(spec.language)
            if self.record.number:
                watcher = resume_watcher(spec, model, language, self.shelf.state_folder(self.record.number))
            else:
                watcher = open_watcher(spec, model, language)
        except BaseException:
            self._machine.admission.release(self.id)
            raise
        self._come_back(watcher)
        return watcher

    def take(self, sequence: int, geometry: Geometry | None) -> None:
        """Count a frame that the watcher took, and keep what became known."""
        assert self._watcher is not None
        if self.record.num_frames == 0:
            self._machine.admission.shrink(self.id, self._watcher.num_bytes)
        self.record = replace(self.record, next_sequence=sequence + 1, num_frames=self.record.num_frames + 1)
        self.num_unsaved += 1
        self.shelf.note_taken(self.record.next_sequence)
        self.lost = self.lost if self.lost is not None and self.record.next_sequence <= self.lost[1] else None
        self.last = StepResult(sequence, geometry)
        self._keep(geometry)

    def finish(self) -> Geometry | None:
        """The results still owed, saved; None where nothing maps."""
        geometry = self.awake().finish()
        self._keep(geometry)
        self.record = replace(self.record, is_finished=True)
        self.num_unsaved += 1
        self.save()
        return geometry

    def save(self) -> None:
        """A save under the next number; the one before counts until it is whole."""
        if self._watcher is None or not self.record.num_frames:
            return
        number = self.record.number + 1
        self.shelf.write_state(number, self._write_state)
        assert self._poses is not None
        record = replace(self.record, number=number, poses=self._poses.grown)
        record = replace(record, saved_s=self._machine.clock(), next_event=self._events.next_id)
        self.shelf.write(record)
        self.record = record
        self.shelf.remove_other_states(number)
        self.num_unsaved = 0
        self._events.add("session.saved", next_sequence=record.next_sequence)

    def leave_memory(self) -> None:
        """Save it and let go of its memory."""
        if self._watcher is None:
            self._machine.admission.release(self.id)
            return
        self.save()
        self._let_go()
        self._events.add("session.evicted")

    def change(self, **changes: Any) -> None:
        """In memory and on disk alike, whatever else is saved."""
        self.record = replace(self.record, **changes)
        self.shelf.write(replace(self.shelf.read(), **changes))

    def copy_to(self, shelf: Shelf) -> SessionRecord:
        """Save it, and write the same as another session's folder; returns its record."""
        self.save()
        record = replace(self.record, created_s=self._machine.clock(), next_event=1)
        self.shelf.copy_to(shelf, record)
        return record

    def remove(self) -> None:
        """Let go of its memory and of all that is on disk."""
        self._let_go()
        self.shelf.remove()

    def _keep(self, geometry: Geometry | None) -> None:
        if self._poses is not None and geometry is not None:
            self._poses.add(geometry)

    @property
    def _demand(self) -> Demand:
        spec = self.record.spec
        wanted = spec.fps if spec.is_pushed or spec.is_address else None
        return Demand(num_bytes=spec.memory_bytes, frames_per_s=wanted or 0.0)

    def _come_back(self, watcher: Watcher) -> None:
        self._poses = PoseLog(self.shelf.folder / POSES_NAME, self.record.poses)
        self._watcher = watcher
        if not self.record.number:
            return
        if self.record.num_frames:
            self._machine.admission.shrink(self.id, watcher.num_bytes)
        path = self.shelf.state_folder(self.record.number) / _LAST_NAME
        if self.last is None and path.is_file():
            self.last = StepResult(self.record.next_sequence - 1, geometry_of(path.read_bytes()))
        self._events.add("session.resumed", next_sequence=self.record.next_sequence, lost_frames=None)

    def _write_state(self, folder: Path) -> None:
        assert self._watcher is not None
        self._watcher.save(folder)
        if self.last is not None and self.last.geometry is not None:
            (folder / _LAST_NAME).write_bytes(geometry_bytes(self.last.geometry))

    def _let_go(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        if self._poses is not None:
            self._poses.close()
        self._watcher = self._poses = None
        self._machine.admission.release(self.id)
