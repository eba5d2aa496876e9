"""A batch from its first video to its last: what is missing is given to workers, what failed is tried again."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache

from longtake.api.map_request import CheckedRequest, MapRequest
from longtake.batch.asked import ASKED_NAME, asked_of, require_same
from longtake.batch.events import BatchEvent, BatchSummary, Ended, Progress, Retried
from longtake.batch.frame_count import FrameCount
from longtake.batch.job import Cause, Failed, Finished, Job, Stopped, Watched
from longtake.batch.manifest import Manifest, Row
from longtake.batch.pool import Pool
from longtake.batch.spans import Plan, plan_of
from longtake.batch.storage import Storage
from longtake.batch.table import TABLE_NAME, write_table
from longtake.errors import InputError, LongtakeError
from longtake.types import counted

_TOLD_EVERY_S = 1.0
_MOST_LOST = 3
"""Videos in a row whose workers died before they had looked at a frame: then the next would too."""
_PASSING = (Cause.CHANCE, Cause.LOST)
"""What another try may come further than."""
_OF_WORKERS = ("model", "device", "precision", "backend", "continue_from")
"""Settings by which workers can be wrong for a video."""


@dataclass(slots=True, eq=False)
class _Video:
    """A video under way."""

    row: Row
    plan: Plan
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
        self._is_stopped = threading.Event()
        self._counts: Counter[str] = Counter()
        self._problems: dict[str, tuple[int, str]] = {}
        """Of videos that were set aside: after how many tries, and why."""
        self._lost: set[str] = set()
        """Videos whose workers died since any worker has last looked at a frame."""
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
        rows = iter(self._manifest)
        videos: dict[str, _Video] = {}
        """Under way, by the names of their jobs."""
        waiting: deque[_Video] = deque()
        """With jobs that nobody has."""
        is_asked_to_stop, has_more = False, True
        while True:
            require_held()
            if self._is_stopped.is_set() and not is_asked_to_stop:
                is_asked_to_stop, has_more = True, False
                waiting.clear()
                self._pool.stop()
            while self._pool.num_free and (waiting or has_more) and not self._is_stopped.is_set():
                if not waiting:
                    row = next(rows, None)
                    if row is None:
                        has_more = False
                        break
                    yield from self._begun(row, waiting)
                    continue
                video = waiting[0]
                job = video.owed.popleft()
                if not video.owed:
                    waiting.popleft()
                video.running.add(job.name)
                videos[job.name] = video
                self._pool.give(job)
            if not videos and not waiting and not has_more:
                return
            for report in self._pool.told(_TOLD_EVERY_S):
                self._frames.count(report)
                if isinstance(report, Watched | Finished):
                    self._lost.clear()
                if not isinstance(report, Watched):
                    yield from self._heard(report, videos.pop(report.name), waiting)
            if time.monotonic() - self._told_s >= _TOLD_EVERY_S:
                yield self._progress(len(videos))

    def _begun(self, row: Row, waiting: "deque[_Video]") -> Iterator[BatchEvent]:
        """A video that is not done joins those that wait; one that cannot even be planned is set aside."""
        try:
            checked, asked = _checked(MapRequest(**row.settings)), asked_of(row)
            require_same(row.name, self._storage.record(row.name, ASKED_NAME), asked)
            if self._is_done(row):
                self._counts.update(done=1, skipped=1)
                return
            plan = plan_of(row, checked, self._storage, asked)
            owed = plan.owed()
        except LongtakeError as error:
            yield self._set_aside(row, 1, str(error))
            return
        video = _Video(row, plan)
        video.owed.extend(owed)
        waiting.append(video)

    def _is_done(self, row: Row) -> bool:
        return self._storage.is_done(row.name, _checked(MapRequest(**row.settings)).outputs)

    def _has_result(self, row: Row) -> bool:
        """A row that cannot be understood has none."""
        try:
            return self._is_done(row)
        except LongtakeError:
            return False

    def _heard(
        self, report: Finished | Stopped | Failed, video: _Video, waiting: "deque[_Video]"
    ) -> Iterator[BatchEvent]:
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
                video.owed.append(video.plan.job(report.name))
            else:
                video.problem = report.problem
                video.owed.clear()
        elif isinstance(report, Finished) and report.name == row.name:
            self._counts.update(done=1)
            folder = f"{self._storage.address}/{row.name}"
            tries = 1 + max(video.failures.values(), default=0)
            yield Ended(name=row.name, source=row.source, folder=folder, tries=tries, summary=report.summary)
            return
        if self._is_stopped.is_set():
            return  # what it still owes is for the next batch
        if video.problem is not None:
            if video in waiting:
                waiting.remove(video)
            if not video.running:
                yield self._set_aside(row, max(video.failures.values()), video.problem)
            return
        if not video.owed and not video.running:
            video.owed.append(video.plan.job(row.name))  # all of its spans are done
        if video.owed and video not in waiting:
            waiting.append(video)

    def _require_workers(self, row: Row, failed: Failed) -> None:
        """What keeps every video from being mapped is told once, and no video set aside for it."""
        if failed.cause is Cause.WORKER and self._manifest.is_usual(row, *_OF_WORKERS):
            raise InputError(f"No video can be mapped: {failed.problem}")
        if failed.cause is Cause.LOST:
            self._lost.add(row.name)
        if len(self._lost) >= _MOST_LOST:
            for name in self._lost & self._problems.keys():
                del self._problems[name]
            raise InputError(
                f"Workers die before they have looked at a frame, with {counted(len(self._lost), 'video')} in a row; "
                f"the last: {failed.problem} Check their memory and what they said, and run the batch again."
            )

    def _set_aside(self, row: Row, tries: int, problem: str) -> Ended:
        self._counts.update(failed=1)
        self._problems[row.name] = (tries, problem)
        folder = f"{self._storage.address}/{row.name}"
        return Ended(name=row.name, source=row.source, folder=folder, tries=tries, problem=problem)

    def _progress(self, running: int) -> Progress:
        self._told_s = time.monotonic()
        done, failed = self._counts["done"], self._counts["failed"]
        left, here = len(self._manifest) - done - failed, done - self._counts["skipped"]
        seconds = self._told_s - self._began_s
        return Progress(
            num_videos=len(self._manifest),
            done=done,
            running=running,
            num_workers=self._pool.num_workers,
            failed=failed,
            frames_per_s=self._frames.rate(),
            eta_s=seconds / here * left if here else None,
        )


@lru_cache(maxsize=64)
def _checked(request: MapRequest) -> CheckedRequest:
    """Most videos of a batch are asked for in the same words."""
    return request.planned()
