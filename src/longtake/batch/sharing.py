"""How many workers share a GPU: one to begin with, and one more while that pays, by the frames that all map a second.

workers each   1 ──────── 2 ──────── 3 ──────── 2 ────────▶
frames/s       41         66         69: less than a tenth more, so the third ends with its video
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from longtake.batch.frame_count import FrameCount
from longtake.batch.job import Failed, Told

_OUT_OF_MEMORY = "OutOfMemoryError"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """A rule, by what was measured alone."""

    most: int
    """Workers that fit into the memory of a GPU."""
    least_gain: float = 0.1
    """The share by which frames a second must grow for a further worker to stay."""
    measured_s: float = 20.0
    """How long each number of workers is measured, all of them at work."""

    def next_count(self, rates: Sequence[float]) -> int:
        """Workers of each GPU, by frames a second of all with one, with two, and so on, as far as was measured."""
        for count, (before, with_one_more) in enumerate(pairwise(rates), start=1):
            if with_one_more < before * (1 + self.least_gain):
                return count
        return min(len(rates) + 1, self.most)


class Growth:
    """The number under trial, and what was measured so far; GPUs of a machine are taken to be alike."""

    def __init__(self, sharing: Sharing, num_gpus: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._sharing, self._num_gpus, self._clock = sharing, num_gpus, clock
        self._count, self._is_settled = 1, sharing.most == 1
        self._rates: list[float] = []
        self._frames = FrameCount()
        self._since: tuple[float, int] | None = None
        """When the measurement began, and the frames until then."""

    @property
    def num_workers(self) -> int:
        """Of all GPUs, as of now."""
        return self._count * self._num_gpus

    def hear(self, reports: Iterable[Told], *, all_work: bool) -> None:
        """What workers told, and whether so many as there should be were at work until then: else nothing is known."""
        for report in reports:
            self._frames.count(report)
            if isinstance(report, Failed) and _OUT_OF_MEMORY in report.problem:
                self._count, self._is_settled = max(1, self._count - 1), True
        if self._is_settled or not all_work:
            self._since = None
        elif self._since is None:
            self._since = self._clock(), self._frames.total
        else:
            self._measure(*self._since)

    def _measure(self, since_s: float, frames_before: int) -> None:
        seconds = self._clock() - since_s
        if seconds < self._sharing.measured_s:
            return
        self._rates.append((self._frames.total - frames_before) / seconds)
        self._count, self._since = self._sharing.next_count(self._rates), None
        self._is_settled = self._count <= len(self._rates)
