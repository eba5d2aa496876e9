"""Frames that were looked at, over all workers, by what these tell."""

import time
from collections import deque

from longtake.batch.job import Finished, Told, Watched

_RATE_OVER_S = 30.0


class FrameCount:
    """Each frame once for each time that it was looked at."""

    def __init__(self) -> None:
        self.total = 0
        self._by_job: dict[str, int] = {}
        self._marks: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def count(self, report: Told) -> None:
        """What a worker tells; of a job that failed or was stopped, what was told before counts."""
        if isinstance(report, Watched | Finished):
            self.total += report.num_frames - self._by_job.get(report.name, 0)
            self._by_job[report.name] = report.num_frames
        if not isinstance(report, Watched):
            self._by_job.pop(report.name, None)

    def rate(self) -> float:
        """Frames a second of the last half minute."""
        now_s = time.monotonic()
        self._marks.append((now_s, self.total))
        while len(self._marks) > 2 and now_s - self._marks[0][0] > _RATE_OVER_S:
            self._marks.popleft()
        since_s, before = self._marks[0]
        return (self.total - before) / (now_s - since_s) if now_s > since_s else 0.0
