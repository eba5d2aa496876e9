"""What a session keeps of its frames on disk while they come: poses, pictures and, where it maps, a take.

worker    take ─▶ poses
                └▶ a queue ─▶ pictures ─▶ results ─▶ listeners ─▶ take
writer                        in order, in the one thread that writes for all sessions

A save waits for what was queued before it, and says how far all files have grown; after a crash they are cut there, so
that frames which are sent again lead to the same bytes.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtake.api.geometry_session import GeometrySession
from longtake.errors import InputError, LongtakeError, SavedSessionError
from longtake.exports.frame import MappedFrame
from longtake.exports.take import TakeSettings
from longtake.pipeline.events import Moved
from longtake.pipeline.map_results import MapResult
from longtake.server.digests import FILES, pixel_digests, require_whole_files
from longtake.server.events import EventLog
from longtake.server.machine import Machine, Step
from longtake.server.pictures import KeptPictures, PictureLog, as_jpeg
from longtake.server.pose_log import PoseLog
from longtake.server.problems import RequestError, problem_of
from longtake.server.shelf import DIGESTS_NAME, PICTURES_NAME, POSES_NAME, TAKE_NAME, Recorded, Shelf
from longtake.server.take_recording import OwedResults, TakeRecording
from longtake.takes.atomic_files import Grown, replace_file
from longtake.takes.fields import JsonObject, content_of
from longtake.takes.header import Network
from longtake.takes.sealed_json import sealed, unsealed
from longtake.types import Geometry

_log = logging.getLogger(__name__)
RECORDING_NAME = "recording.json"
_MOST_QUEUED = 8
"""Frames of one session; the worker waits then."""

StepListener = Callable[[Step, Sequence[MapResult]], None]
"""Hears of each step in the writer's thread, with what became known of frames and what moved.

All sessions share that thread: it must not take long. Should it fail, the others hear all the same.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Desk:
    """Where a recorder works, and whom it tells."""

    shelf: Shelf
    machine: Machine
    events: EventLog
    listeners: Sequence[StepListener]
    fps: float | None
    network: Network | None


@dataclass(frozen=True, slots=True, eq=False)
class SavedRecording:
    """What there was of the take when it was saved, and the record to go on from."""

    recorded: Recorded
    record: Mapping[str, Any]

    def write(self, folder: Path, files: Mapping[str, str]) -> None:
        """Into the folder of the save, with the digests of files that others put there."""
        replace_file(folder / RECORDING_NAME, sealed({**self.record, FILES: {**self.record.get(FILES, {}), **files}}))


class Recorder:
    """Of one session while it is in memory. Its methods are called by the worker."""

    def __init__(self, desk: Desk, mapping: GeometrySession | None, state: Path | None) -> None:
        """Goes on from the folder of a save; without one, nothing was recorded yet."""
        self._desk, self._mapping = desk, mapping
        saved = None if state is None else saved_recording(state)
        self._queued: deque[Future[None]] = deque()
        self._bytes_a_frame, self._is_closed = 0, False
        self._recorded = Recorded() if saved is None else Recorded.from_record(saved.object("recorded"))
        self._owed: OwedResults | None = None
        if mapping is not None and (state is None or saved is None):
            self._owed = OwedResults()
        elif mapping is not None and state is not None and saved is not None and "owed" in saved.fields:
            self._owed = OwedResults.resume(saved, state, mapping)
        self._pictures: PictureLog | None = None
        self._take: TakeRecording | None = None
        self._poses = self._open_poses(_poses(saved))
        if self._recorded.stopped is None:
            self._open_files(saved)

    @property
    def recorded(self) -> Recorded:
        """So far."""
        return self._recorded

    def record(self, step: Step) -> None:
        """Keep what a step gave; most of it is made in the writer's thread."""
        while len(self._queued) >= _MOST_QUEUED:
            wait([self._queued.popleft()])
        self._queued.append(self._desk.machine.writer.submit(self._write, step))
        if step.geometry is not None and self._poses is not None:
            self._keep_poses(self._poses, step.geometry)  # last: what these rows were moved by is on its way

    def miss(self, error: Exception) -> None:
        """A step that was made, but cannot be told of: nothing that comes after it can be recorded."""
        self._desk.machine.writer.submit(self._lose_track, error)

    def save(self, folder: Path) -> "Future[SavedRecording]":
        """Bring to the disk what was recorded so far, and write into the folder of a save what is needed to go on.

        Steps may be recorded meanwhile. The end is to be awaited; it gives the record that is to be written last.
        """
        grown = None if self._poses is None else self._poses.grown
        return self._desk.machine.writer.submit(self._save, folder, self._poses, grown)

    def check_pixels(self) -> None:
        """Compare the take on disk with what was written; a difference stops the recording. Called in any thread."""
        folder = self._desk.shelf.folder
        try:
            require_whole_files(folder / TAKE_NAME, pixel_digests(folder / DIGESTS_NAME), is_enough=self._is_over)
        except SavedSessionError as error:
            if not self._is_over():
                self._desk.machine.writer.submit(self._stop, error)

    def _is_over(self) -> bool:
        return self._is_closed or self._desk.machine.is_ending()

    def close(self) -> None:
        self._is_closed = True
        self._desk.machine.writer.submit(self._close_files).result()
        if self._poses is not None:
            self._poses.close()

    def _open_poses(self, kept: Grown | None) -> PoseLog | None:
        """None where they were given up, or the file is not what was kept of it."""
        if kept is None:
            return None
        try:
            return PoseLog(self._desk.shelf.folder / POSES_NAME, kept)
        except Exception as error:  # noqa: BLE001 - logged, and told as what stopped it
            self._stop(error)
            return None

    def _keep_poses(self, poses: PoseLog, geometry: Geometry) -> None:
        """At once, for who asks for them after the frame was acknowledged."""
        try:
            poses.add(geometry)
        except Exception as error:  # noqa: BLE001 - logged, and told as what stopped it
            poses.close()
            self._poses = None
            self._desk.machine.writer.submit(self._stop, error)

    def _open_files(self, saved: JsonObject | None) -> None:
        """New, or as they were; files that are gone or changed are no reason to lose the session."""
        folder = self._desk.shelf.folder
        try:
            kept = KeptPictures() if saved is None else KeptPictures.from_record(saved.object("pictures"))
            self._pictures = PictureLog(folder / PICTURES_NAME, kept)
            if self._mapping is not None:
                state = None if saved is None else saved.object("take").fields
                settings = TakeSettings(fps=self._desk.fps, network=self._desk.network)
                self._take = TakeRecording(
                    folder / TAKE_NAME, folder / DIGESTS_NAME, settings, state, _grown(saved, "digests")
                )
        except Exception as error:  # noqa: BLE001 - logged, and told as what stopped it
            self._stop(error)

    def _write(self, step: Step) -> None:
        """One step, in the writer's thread, piece by piece."""
        self._desk.machine.lull.wait()
        results = self._results_of(step)
        for listener in self._desk.listeners:
            try:
                listener(step, results)
            except Exception:  # noqa: BLE001 - logged; files and other listeners are no part of it
                _log.exception("not heard of frame %d", step.index, extra=self._named)
        if self._pictures is None:
            return
        try:
            self._require_room()
            self._write_files(self._pictures, step, results)
        except Exception as error:  # noqa: BLE001 - logged, and told as what stopped it
            self._stop(error)

    def _results_of(self, step: Step) -> Sequence[MapResult]:
        if self._owed is None or step.geometry is None:
            return []
        try:
            results = self._owed.take(step)
        except Exception as error:  # noqa: BLE001 - logged, and told as what stopped it
            self._lose_track(error)
            return []
        for moved in (result for result in results if isinstance(result, Moved)):
            self._recorded = self._recorded.moved(moved.correction.version, self._owed.corrections)
        return results

    def _lose_track(self, error: Exception) -> None:
        """Results are of no known frame any more."""
        self._owed = None
        self._stop(error)

    def _write_files(self, pictures: PictureLog, step: Step, results: Sequence[MapResult]) -> None:
        num_bytes = 0
        if step.frame is not None:
            self._desk.machine.lull.wait()
            jpeg = as_jpeg(step.frame.picture)
            pictures.add(jpeg, step.frame.time_s)
            num_bytes += len(jpeg)
        if self._take is not None:
            for frame in (result for result in results if isinstance(result, MappedFrame)):
                self._desk.machine.lull.wait()
                written = self._take.write(frame)
                self._recorded = self._recorded.grown_by(written)
                num_bytes += written
        self._bytes_a_frame = num_bytes

    def _require_room(self) -> None:
        """Refuse a frame beyond the quota, taking it for as large as the one before."""
        quota = self._desk.machine.quota
        if not quota.take(self._bytes_a_frame):
            raise RequestError(
                "quota", "The sessions' part of the disk is full; close sessions that are no longer needed.", status=429
            )

    def _stop(self, error: Exception) -> None:
        """Record no more, for good, so that what there is has no gaps; the session goes on."""
        if not isinstance(error, LongtakeError):
            _log.error("not recorded", extra=self._named, exc_info=error)
        if self._recorded.stopped is not None:
            return
        problem = problem_of(error)
        reason = problem.message if isinstance(error, LongtakeError) else "The server failed to record it."
        self._recorded = self._recorded.stopped_by(reason)
        self._close_files()
        if isinstance(error, InputError):
            self._desk.events.add("error", code="recording", message=problem.message)
        self._desk.events.add("recording.stopped", message=self._recorded.stopped)

    def _save(self, folder: Path, poses: PoseLog | None, grown: Grown | None) -> SavedRecording:
        """Poses are written by the worker: by now there may be more than had grown then."""
        self._desk.machine.lull.wait()
        recorded = self._recorded
        record: dict[str, Any] = {"recorded": recorded.to_record(), "poses": None}
        if poses is not None and grown is not None:
            poses.sync()
            record["poses"] = _plain(grown)
        if self._owed is not None:
            record |= self._owed.save(folder)
        if self._pictures is not None:
            self._pictures.sync()
            record["pictures"] = self._pictures.kept.to_record()
        if self._take is not None:
            record["take"] = dict(self._take.checkpoint())
            record["digests"] = _plain(self._take.digests_grown)
        return SavedRecording(recorded, record)

    def _close_files(self) -> None:
        files = [file for file in (self._pictures, self._take) if file is not None]
        self._pictures = self._take = None
        for file in files:
            try:
                file.close()
            except Exception:  # noqa: BLE001 - logged; a save has brought to the disk what counts
                if self._desk.shelf.folder.is_dir():  # else it was removed, and nothing is to be kept
                    _log.exception("not closed", extra=self._named)

    @property
    def _named(self) -> dict[str, str]:
        """For a line of the log."""
        return {"session": self._desk.shelf.folder.name}


def saved_recording(state: Path) -> JsonObject:
    """The record in the folder of a save, with the digests of files beside it; those of networks have their own."""
    path = state / RECORDING_NAME
    try:
        return unsealed(JsonObject.parse(content_of(path), str(path)))
    except OSError as error:
        raise SavedSessionError(f"The saved session {path} cannot be read ({error.strerror}).") from error


def kept_poses(state: Path) -> Grown | None:
    """How much of the file of poses a save counts; None where they were given up before."""
    return _poses(saved_recording(state))


def kept_lines(state: Path) -> dict[str, str]:
    """Digests of the lines of the take that a save counts, by their files; none of a session without a take."""
    saved = saved_recording(state)
    take = saved.optional("take", saved.object)
    digests = None if take is None else take.optional("digests", take.object)
    return {} if digests is None else {name: digests.text(name) for name in digests.fields}


def _poses(saved: JsonObject | None) -> Grown | None:
    if saved is None:
        return Grown(num_bytes=0)
    return _grown(saved, "poses")


def _grown(saved: JsonObject | None, name: str) -> Grown | None:
    """What a save says of a file that grows; None where it says nothing."""
    told = None if saved is None else saved.optional(name, saved.object)
    if told is None:
        return None
    return Grown(num_bytes=told.integer("num_bytes"), sha256=told.optional("sha256", told.text))


def _plain(grown: Grown) -> dict[str, Any]:
    return {"num_bytes": grown.num_bytes, "sha256": grown.sha256}
