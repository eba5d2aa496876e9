"""One worker: a model, a process that writes, and one job after the other. What runs it is a pool's affair."""

import os
import re
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from longtake.api.map_request import MapRequest, Networks
from longtake.batch.asked import nothing_alone, read_asked, require_same, write_asked
from longtake.batch.job import Cause, Failed, Finished, Job, JoinJob, MapJob, Stopped, Told, Watched
from longtake.batch.joining import join_spans
from longtake.batch.storage import is_gone
from longtake.errors import InputError, LongtakeError, OccupiedError, SettingError, StorageError
from longtake.pipeline.checkpoint import CheckpointRule
from longtake.pipeline.events import Frame, Saved, Unreadable
from longtake.pipeline.run import Run
from longtake.pipeline.run_folder import is_done, mend_end
from longtake.pipeline.writer_process import WriterProcess

_TOLD_EVERY_S = 0.5
_INSTEAD = '--model {0} (model="{0}")'
"""A batch may be of a command or of a program."""
_OVERWRITING = re.compile(r"(start again|replace (it|the run)) with --overwrite \(overwrite=True\)")
"""Advice of `longtake map`, which a batch has no option for."""


def worker_environment(threads: int) -> dict[str, str]:
    """Of a worker's process: how many threads it computes with, and that all of them share one arena of memory.

    By glibc's usual rule each thread has its own, and what one video freed was not there for the next: a worker grew by
    a tenth and more with the videos that it did. Its time is the same with one.
    """
    return {"OMP_NUM_THREADS": str(threads), "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "1")}


class Worker:
    """Does jobs in its own thread; `stop` may come from any other."""

    def __init__(self) -> None:
        self._networks, self._writer = Networks(), WriterProcess()
        self._run: Run | None = None
        self._is_stopped = threading.Event()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._writer.close()

    def stop(self) -> None:
        """End what is begun so that it can go on, and begin nothing more."""
        self._is_stopped.set()
        if (run := self._run) is not None:
            run.stop()

    def do(self, job: Job, tell: Callable[[Told], None]) -> Told:
        """How a job ended; `tell` hears how far it is."""
        try:
            return self._join(job) if isinstance(job, JoinJob) else self._map(job, tell)
        except LongtakeError as error:
            problem = _OVERWRITING.sub("delete that folder", str(error))
            return Failed(name=job.name, problem=problem, cause=_cause(job, error))
        except Exception as error:  # noqa: BLE001 - of one video among many
            traceback.print_exc()
            what = " ".join(str(error).split())
            return Failed(name=job.name, problem=f"{type(error).__name__}: {what}")

    def _map(self, job: MapJob, tell: Callable[[Told], None]) -> Told:
        try:
            request = job.request.checked()
        except (LongtakeError, ImportError) as error:
            return _refused(job, error, _blamed(job.request))
        try:
            self._networks.get(request.model, job.request)
        except (LongtakeError, ImportError) as error:
            return _refused(job, error, Cause.WORKER)
        folder, num_frames = job.storage.folder(job.name), 0
        if is_done(folder, request.outputs):
            require_same(job.name, read_asked(folder), job.asked)
            mend_end(folder)
        else:
            job.storage.bring(job.name)
            with (
                nothing_alone(folder),
                request.open(job.source, folder, self._networks, self._writer, resume=True, instead=_INSTEAD) as run,
            ):
                self._run = run
                write_asked(folder, job.asked)
                try:
                    if self._is_stopped.is_set():
                        return Stopped(name=job.name)
                    num_frames = _watch(job, run, tell, _Keeping(job, request.settings.checkpoints))
                finally:
                    self._run = None
                if run.summary is None or not run.summary.is_complete or run.owes_export:
                    job.storage.keep(job.name)
                    return Stopped(name=job.name)
        return _delivered(job, num_frames)

    def _join(self, job: JoinJob) -> Told:
        if self._is_stopped.is_set():
            return Stopped(name=job.name)
        folder = job.storage.folder(job.name)
        if is_done(folder):
            require_same(job.name, read_asked(folder), job.asked)
            mend_end(folder)
        else:
            join_spans(job, folder)
        finished = _delivered(job)
        for span in job.spans:
            job.storage.remove(span)
        return finished


def _refused(job: MapJob, error: LongtakeError | ImportError, cause: Cause) -> Failed:
    return Failed(name=job.name, problem=" ".join(str(error).split()), cause=cause)


def _blamed(request: MapRequest) -> Cause:
    """Of one that is refused: its masks, where it would not be without them."""
    try:
        replace(request, mask=None, sky=None).checked()
    except (LongtakeError, ImportError):
        return Cause.WORKER
    return Cause.MASKS


def _cause(job: Job, error: LongtakeError) -> Cause:
    """What lies on other machines, or is being written by others, may be there the next time."""
    if isinstance(error, StorageError):
        return Cause.STORAGE
    is_here = "://" not in job.source and not isinstance(error, OccupiedError) and not is_gone(error.__cause__)
    return Cause.VIDEO if is_here and isinstance(error, InputError | SettingError) else Cause.CHANCE


class _Keeping:
    """Which checkpoints of a video are kept where others find them: as often as they are made, if that costs little."""

    def __init__(self, job: MapJob, rule: CheckpointRule) -> None:
        self._job, self._rule = job, rule
        self._num_frames, self._ended_s, self._cost_s = 0, time.monotonic(), 0.0

    def saved(self, num_frames: int) -> None:
        """A checkpoint is complete."""
        begun_s = time.monotonic()
        if self._rule.is_due(
            num_frames=num_frames - self._num_frames, seconds=begun_s - self._ended_s, cost_s=self._cost_s
        ):
            self._job.storage.keep(self._job.name)
            self._num_frames, self._ended_s = num_frames, time.monotonic()
            self._cost_s = self._ended_s - begun_s


def _watch(job: MapJob, run: Run, tell: Callable[[Told], None], keeping: _Keeping) -> int:
    """To its end; returns how many frames there were."""
    told_s, num_frames = time.monotonic(), 0
    for event in run:
        num_frames += isinstance(event, Frame | Unreadable)
        if isinstance(event, Saved):
            keeping.saved(event.num_frames)
        if time.monotonic() - told_s >= _TOLD_EVERY_S:
            told_s = time.monotonic()
            before, in_all = run.num_told - num_frames, run.source.num_frames
            tell(Watched(name=job.name, num_frames=num_frames, num_before=before, num_in_all=in_all))
    return num_frames


def _delivered(job: Job, num_frames: int = 0) -> Finished:
    job.storage.deliver(job.name)
    return Finished(name=job.name, num_frames=num_frames, summary=job.storage.summary(job.name) or {})
