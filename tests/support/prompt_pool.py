"""Workers that tell what a test lets them tell, and a batch of worlds by them."""

import csv
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from longtake.batch.driver import Batch
from longtake.batch.events import BatchEvent
from longtake.batch.job import Finished, Job, Stopped, Told
from longtake.batch.manifest import open_manifest
from longtake.batch.open_storage import open_storage
from longtake.batch.pool import Pool


class PromptPool(Pool):
    """Does each job at once, as `outcome` says."""

    def __init__(self, outcome: Callable[[Job], Told], num_workers: int = 2) -> None:
        self._outcome, self._num_workers = outcome, num_workers
        self._reports: deque[Told] = deque()
        self.given: list[str] = []
        self.is_stopped = self.is_closed = False

    @property
    def num_workers(self) -> int:
        return self._num_workers

    @property
    def num_free(self) -> int:
        return self._num_workers - len(self._reports)

    def give(self, job: Job) -> None:
        self.given.append(job.name)
        self._reports.append(self._outcome(job))

    def told(self, timeout_s: float) -> Sequence[Told]:
        return [self._reports.popleft()] if self._reports else []

    def stop(self) -> None:
        self.is_stopped = True
        self._reports = deque(Stopped(name=report.name) for report in self._reports)

    def close(self) -> None:
        self.is_closed = True


def done(job: Job) -> Finished:
    folder = job.storage.folder(job.name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text('{"is_complete": true, "num_frames": 5, "model": "tiny"}')
    (folder / "report.html").touch()
    return Finished(name=job.name, num_frames=5, summary=job.storage.summary(job.name) or {})


def run(out: Path, pool: Pool, num_videos: int = 4, tries: int = 3) -> tuple[Batch, list[BatchEvent]]:
    rows = [{"source": f"world:{number}", "name": f"w{number}"} for number in range(num_videos)]
    batch = Batch(open_manifest(rows, {"model": "tiny"}), open_storage(out), pool, tries=tries)
    return batch, list(batch)


def table(out: Path) -> list[dict[str, str]]:
    with (out / "videos.csv").open(newline="") as file:
        return list(csv.DictReader(file))
