"""A batch from its first video to its last: what is missing is given to workers, what failed is tried again."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache

from longtake.api.map_request import CheckedRequest, MapRequest
from longtake.batch.asked import ASKED_NAME, asked_of, require_same
from longtake.batch.events import BatchEvent, BatchSummary, Ended, Progress, Retried
from longtake.batch.frame_count import FrameCount
from longtake.batch.job import Cause, Failed, Finished, Job, Stopped, Told, Watched
from longtake.batch.manifest import Manifest, Row
from longtake.batch.naming import TABLE_NAME
from longtake.batch.pauses import Pauses
from longtake.batch.pool import Pool
from longtake.batch.spans import Plan, plan_of, remove_joined
from longtake.batch.storage import Storage
from longtake.batch.table import require_own_table, write_table
from longtake.batch.video_share import VideoShare
from longtake.errors import InputError, LongtakeError, StorageError
from longtake.types import counted

_TOLD_EVERY_S = 1.0
_MOST_IN_A_ROW = 3
"""Videos that failed of what the next would fail of too."""
_IN_A_ROW = {
    Cause.LOST: "Workers die before they have looked at a frame, with {count} in a row; the last: {problem} Check "
    "their memory and what they said, and run the batch again.",
    Cause.STORAGE: "Results of {count} in a row cannot be written; the last: {problem} What is done stays; run the "
    "batch again then.",
}
_PASSING = (Cause.CHANCE, *_IN_A_ROW)
"""What another try may come further than."""
_OF_WORKERS = {
    Cause.WORKER: ("model", "device", "precision", "backend", "continue_from"),
    Cause.MASKS: ("mask", "sky"),
}
"""Settings by which workers can be wrong for a video: for all, where a row has none of its own."""


@dataclass(slots=True, eq=False)
class _Video:
    """A video under way."""

    row: Row
    plan: Plan
    share: VideoShare
    failures: Counter[str] = field(default_factory=Counter)
    """Of each of its jobs."""
    owed: deque[Job] = field(default_factory=deque)
    """Jobs that were not given to anybody yet."""
    running: set[str] = field(default_factory=set)
    problem: str | None = None
    """Why it is given up; what runs of it ends first."""


class Batch(Iterator[BatchEvent]):
    """Iterate, once, for what happens; `stop` ends it so that the same batch goes on later."""

    def __init__(self, manifest: Manifest, storage: Storage, pool: Pool, *, tries: int = 3) -> None:
        """A video that fails so often is set aside."""
        self._manifest, self._storage, self._pool, self._most_tries = manifest, storage, pool, tries
        self._is_stopped, self._is_asked_to_stop = threading.Event(), False
        self._counts: Counter[str] = Counter()
        self._problems: dict[str, tuple[int, str]] = {}
        """Of videos that were set aside: after how many tries, and why."""
        self._in_a_row: dict[Cause, set[str]] = {cause: set() for cause in _IN_A_ROW}
        """Videos whose workers died since any has last looked at a frame, or that were not written since one was."""
        self._rows, self._has_more = iter(manifest), True
        self._running: dict[str, _Video] = {}
        """Videos, by the names of their jobs that somebody has."""
        self._waiting: deque[_Video] = deque()
        """With jobs that nobody has."""
        self._pauses = Pauses[_Video]()
        """Of jobs that failed."""
        self._frames = FrameCount()
        self._began_s = self._told_s = time.monotonic()
        self.summary: BatchSummary | None = None
        """Once it has ended."""
        self._events = self._happening()

    def stop(self) -> None:
        """Begin nothing more, and end what is begun so that it can go on."""
        self._is_stopped.set()

    def __next__(self) -> BatchEvent:
        return next(self._events)

    def _happening(self) -> Iterator[BatchEvent]:
        with closing(self._pool), self._storage.held() as require_held:
            require_own_table(self._storage)
            try:
                yield from self._work(require_held)
            finally:
                self._pool.close()
                require_held()
                write_table(self._storage, self._manifest, self._problems, self._has_result)
            yield self._progress(0)
        self.summary = BatchSummary(
            out=self._storage.address,
            table=f"{self._storage.address}/{TABLE_NAME}",
            num_videos=len(self._manifest),
            done=self._counts["done"],
            skipped=self._counts["skipped"],
            failed=self._counts["failed"],
            num_frames=self._frames.total,
            seconds=time.monotonic() - self._began_s,
            is_complete=not self._is_stopped.is_set(),
        )

    def _work(self, require_held: Callable[[], None]) -> Iterator[BatchEvent]:
        while True:
            require_held()
            if self._is_stopped.is_set() and not self._is_asked_to_stop:
                self._ask_to_stop()
            for video, name in self._pauses.ended():
                self._owe(video, name)
            yield from self._given()
            if not self._running and not self._waiting and not self._has_more and not self._pauses:
                return
            for report in self._told():
                yield from self._noted(report)
            if time.monotonic() - self._told_s >= _TOLD_EVERY_S:
                underway = {*self._running.values(), *self._waiting, *self._pauses.videos()}
                yield self._progress(len(self._running), underway)

    def _ask_to_stop(self) -> None:
        self._is_asked_to_stop, self._has_more = True, False
        self._waiting.clear()
        self._pauses.clear()
        self._pool.stop()

    def _given(self) -> Iterator[BatchEvent]:
        """All that is free gets a job; videos that are done are passed over no longer than workers can wait."""
        until_s = time.monotonic() + _TOLD_EVERY_S
        while self._can_give and not self._is_stopped.is_set():
            if self._waiting:
                self._give()
            elif (row := next(self._rows, None)) is None:
                self._has_more = False
            else:
                yield from self._begun(row)
                if not self._waiting and time.monotonic() >= until_s:
                    return

    @property
    def _can_give(self) -> bool:
        return self._pool.num_free > 0 and (bool(self._waiting) or self._has_more)

    def _give(self) -> None:
        video = self._waiting[0]
        job = video.owed.popleft()
        if not video.owed:
            self._waiting.popleft()
        video.running.add(job.name)
        self._running[job.name] = video
        self._pool.give(job)

    def _owe(self, video: _Video, name: str) -> None:
        video.owed.append(video.plan.job(name))
        if video not in self._waiting:
            self._waiting.append(video)

    def _told(self) -> Sequence[Told]:
        """Workers are not waited for while there is something to give, nor where all that is left are pauses."""
        if self._can_give:
            return self._pool.told(0.0)
        if self._running or self._waiting or self._has_more:
            return self._pool.told(_TOLD_EVERY_S)
        self._is_stopped.wait(min(_TOLD_EVERY_S, self._pauses.left_s()))
        return self._pool.told(0.0)

    def _noted(self, report: Told) -> Iterator[BatchEvent]:
        self._frames.count(report)
        self._running[report.name].share.hear(report)
        if isinstance(report, Watched | Finished):
            self._in_a_row[Cause.LOST].clear()
        if isinstance(report, Finished):
            self._in_a_row[Cause.STORAGE].clear()
        if not isinstance(report, Watched):
            yield from self._heard(report, self._running.pop(report.name))

    def _begun(self, row: Row) -> Iterator[BatchEvent]:
        """A video that is not done joins those that wait; one that cannot even be planned is set aside."""
        try:
            checked, asked = _checked(MapRequest(**row.settings)), asked_of(row)
            require_same(row.name, self._storage.record(row.name, ASKED_NAME), asked)
            if self._is_done(row):
                self._counts.update(done=1, skipped=1)
                self._storage.forget(row.name)
                if row.spans > 1:
                    remove_joined(row.name, self._storage)
                return
            plan = plan_of(row, checked, self._storage, asked)
            owed = plan.owed()
        except StorageError:
            raise  # of the next video it would be the same
        except LongtakeError as error:
            yield self._set_aside(row, 1, str(error))
            return
        parts = [name for name in plan.jobs if name != row.name] or [row.name]
        done = set(parts) - {job.name for job in owed}
        video = _Video(row, plan, VideoShare(parts, done))
        video.owed.extend(owed)
        self._waiting.append(video)

    def _is_done(self, row: Row) -> bool:
        return self._storage.is_done(row.name, _checked(MapRequest(**row.settings)).outputs)

    def _has_result(self, row: Row) -> bool:
        """A row that cannot be understood has none."""
        try:
            return self._is_done(row)
        except StorageError:
            raise  # nobody knows
        except LongtakeError:
            return False

    def _heard(self, report: Finished | Stopped | Failed, video: _Video) -> Iterator[BatchEvent]:
        """How a job of a video ended."""
        row = video.row
        video.running.discard(report.name)
        if isinstance(report, Stopped) or (self._is_stopped.is_set() and isinstance(report, Failed)):
            return
        if isinstance(report, Failed) and video.problem is None:
            video.failures[report.name] += 1
            self._require_workers(row, report)
            if (failures := video.failures[report.name]) < self._most_tries and report.cause in _PASSING:
                yield Retried(name=row.name, problem=report.problem, tries=failures)
                self._pauses.begin(video, report.name, failures)
            else:
                video.problem = report.problem
                video.owed.clear()
                self._pauses.drop(video)
        elif isinstance(report, Finished) and report.name == row.name:
            self._counts.update(done=1)
            folder = f"{self._storage.address}/{row.name}"
            tries = 1 + max(video.failures.values(), default=0)
            yield Ended(name=row.name, source=row.source, folder=folder, tries=tries, summary=report.summary)
            return
        if self._is_stopped.is_set():
            return  # what it still owes is for the next batch
        if video.problem is not None:
            if video in self._waiting:
                self._waiting.remove(video)
            if not video.running:
                yield self._set_aside(row, max(video.failures.values()), video.problem)
        elif not video.owed and not video.running and video not in self._pauses.videos():
            self._owe(video, row.name)  # all of its spans are done

    def _require_workers(self, row: Row, failed: Failed) -> None:
        """What keeps every video from being mapped is told once, and no video set aside for it."""
        if failed.cause in _OF_WORKERS and self._manifest.is_usual(row, *_OF_WORKERS[failed.cause]):
            raise InputError(f"No video can be mapped: {failed.problem}")
        if failed.cause not in _IN_A_ROW:
            return
        names = self._in_a_row[failed.cause]
        names.add(row.name)
        if len(names) >= _MOST_IN_A_ROW:
            for name in names & self._problems.keys():
                del self._problems[name]
            count = counted(len(names), "video")
            raise InputError(_IN_A_ROW[failed.cause].format(count=count, problem=failed.problem))

    def _set_aside(self, row: Row, tries: int, problem: str) -> Ended:
        self._counts.update(failed=1)
        self._problems[row.name] = (tries, problem)
        folder = f"{self._storage.address}/{row.name}"
        return Ended(name=row.name, source=row.source, folder=folder, tries=tries, problem=problem)

    def _progress(self, running: int, underway: Iterable[_Video] = ()) -> Progress:
        self._told_s = time.monotonic()
        done, failed = self._counts["done"], self._counts["failed"]
        shares = [video.share for video in underway]
        over = done + failed + sum(share.done for share in shares)
        here = done - self._counts["skipped"] + sum(share.here for share in shares)
        seconds = self._told_s - self._began_s
        return Progress(
            num_videos=len(self._manifest),
            done=done,
            running=running,
            num_workers=self._pool.num_workers,
            failed=failed,
            share=over / len(self._manifest),
            num_frames=self._frames.total,
            frames_per_s=self._frames.rate(),
            eta_s=seconds / here * (len(self._manifest) - over) if here else None,
        )


@lru_cache(maxsize=64)
def _checked(request: MapRequest) -> CheckedRequest:
    """Most videos of a batch are asked for in the same words."""
    return request.planned()
