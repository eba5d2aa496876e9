"""What a session keeps of its frames on disk while they come: poses, pictures and, where it maps, a take.

worker    take ─▶ poses
                └▶ a queue ─▶ pictures ─▶ results ─▶ listeners ─▶ take
writer                        in order, in the one thread that writes for all sessions

A save waits for what was queued before it, and says how far all files have grown; after a crash they are cut there, so
that frames which are sent again lead to the same bytes.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtake.api.geometry_session import GeometrySession
from longtake.errors import InputError, LongtakeError, SavedSessionError
from longtake.pipeline.events import Moved
from longtake.pipeline.map_results import MapResult
from longtake.server.events import EventLog
from longtake.server.machine import Machine, Step
from longtake.server.pictures import KeptPictures, PictureLog, as_jpeg
from longtake.server.pose_log import PoseLog
from longtake.server.problems import RequestError
from longtake.server.shelf import PICTURES_NAME, POSES_NAME, TAKE_NAME, Recorded, Shelf
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


class Recorder:
    """Of one session while it is in memory. Its methods are called by the worker."""

    def __init__(self, desk: Desk, mapping: GeometrySession | None, state: Path | None) -> None:
        """Goes on from the folder of a save; without one, nothing was recorded yet."""
        self._desk, self._mapping = desk, mapping
        saved = None if state is None else _read(state)
        self._queued: deque[Future[None]] = deque()
        self._bytes_a_frame = 0
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

    def save(self, folder: Path) -> "Future[Recorded]":
        """Bring to the disk what was recorded so far, and write into the folder of a save what is needed to go on.

        Steps may be recorded meanwhile. The end is to be awaited; it gives what there was of the take.
        """
        grown = None if self._poses is None else self._poses.grown
        return self._desk.machine.writer.submit(self._save, folder, self._poses, grown)

    def close(self) -> None:
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
                self._take = TakeRecording(folder / TAKE_NAME, self._desk.fps, self._desk.network, state)
        except Exception as error:  # noqa: BLE001 - logged, and told as what stopped it
            self._stop(error)

    def _write(self, step: Step) -> None:
        """One step, in the writer's thread."""
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
            jpeg = as_jpeg(step.frame.picture)
            pictures.add(jpeg, step.frame.time_s)
            num_bytes += len(jpeg)
        if self._take is not None:
            for written in self._take.write(results):
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
        reason = str(error) if isinstance(error, LongtakeError) else "The server failed to record it."
        why = f"{reason} This session goes on, but nothing more is recorded of it."
        self._recorded = self._recorded.stopped_by(why)
        self._close_files()
        if isinstance(error, InputError):
            self._desk.events.add("error", code="recording", message=str(error))
        self._desk.events.add("recording.stopped", message=why)

    def _save(self, folder: Path, poses: PoseLog | None, grown: Grown | None) -> Recorded:
        """Poses are written by the worker: by now there may be more than had grown then."""
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
        replace_file(folder / RECORDING_NAME, sealed(record))
        return recorded

    def _close_files(self) -> None:
        files = [file for file in (self._pictures, self._take) if file is not None]
        self._pictures = self._take = None
        for file in files:
            try:
                file.close()
            except Exception:  # noqa: BLE001 - logged; a save has brought to the disk what counts
                _log.exception("not closed", extra=self._named)

    @property
    def _named(self) -> dict[str, str]:
        """For a line of the log."""
        return {"session": self._desk.shelf.folder.name}


def _read(state: Path) -> JsonObject:
    path = state / RECORDING_NAME
    try:
        return unsealed(JsonObject.parse(content_of(path), str(path)))
    except OSError as error:
        raise SavedSessionError(f"The saved session {path} cannot be read ({error.strerror}).") from error


def _poses(saved: JsonObject | None) -> Grown | None:
    if saved is None:
        return Grown(num_bytes=0)
    poses = saved.optional("poses", saved.object)
    if poses is None:
        return None
    return Grown(num_bytes=poses.integer("num_bytes"), sha256=poses.optional("sha256", poses.text))


def _plain(grown: Grown) -> dict[str, Any]:
    return {"num_bytes": grown.num_bytes, "sha256": grown.sha256}
