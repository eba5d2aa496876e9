"""Workers as processes of this machine.

here                                 each worker
LocalPool  a job, or a wish ──────▶  stdin, read by a thread
           what it tells ◀─────────  stdout, pickled
           that it died ◀──────────  the end of it
"""

import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from longtake.batch.job import Cause, Failed, Finished, Job, Told, Watched
from longtake.batch.pool import Pool
from longtake.batch.sharing import Growth
from longtake.batch.worker import Worker, worker_environment
from longtake.errors import InputError

_START = (
    "import sys; sys.path[:] = {path!r}; from longtake.pipeline.lifeline import hang_on_parent; hang_on_parent(); "
    "from longtake.batch.local_pool import serve; serve({threads})"
)
_STOP = "stop"
_READY = "ready"
"""A worker says so before its first job: one that dies later died of that."""
_ENDING_S = 5.0
_MOST_STILLBORN = 3
"""Processes in a row that died before they had done anything: then the next would too."""


class LocalPool(Pool):
    """Started when there is work for them."""

    def __init__(
        self,
        num_workers: int,
        *,
        threads: int = 1,
        environments: Sequence[Mapping[str, str]] = ({},),
        growth: Growth | None = None,
    ) -> None:
        """`threads` each worker computes with: on other numbers of them results differ by rounding.

        `environments` are taken in turn: by these, workers can have a GPU each. With `growth` they are as many as that
        says, `num_workers` at most.
        """
        self._threads, self._environments, self._growth = threads, environments, growth
        self._reports: queue.Queue[tuple[_Process, Told | None]] = queue.Queue()
        self._workers: list[_Process | None] = [None] * num_workers
        self._num_stillborn = 0

    @property
    def num_workers(self) -> int:
        return len(self._workers) if self._growth is None else min(len(self._workers), self._growth.num_workers)

    @property
    def num_free(self) -> int:
        return sum(worker is None or worker.job is None for worker in self._workers[: self.num_workers])

    @property
    def process_ids(self) -> list[int]:
        """Of workers that were started and have not ended."""
        return [worker.process_id for worker in self._workers if worker is not None]

    def give(self, job: Job) -> None:
        place = next(at for at, worker in enumerate(self._workers) if worker is None or worker.job is None)
        worker = self._workers[place]
        if worker is None:
            environment = self._environments[place % len(self._environments)]
            worker = self._workers[place] = _Process(self._reports, self._threads, environment)
        worker.give(job)

    def told(self, timeout_s: float) -> Sequence[Told]:
        all_work = all(worker is not None and worker.is_at_work for worker in self._workers[: self.num_workers])
        reports = self._heard(timeout_s)
        if self._growth is not None:
            self._growth.hear(reports, all_work=all_work)
            self._end_surplus()
        return reports

    def _heard(self, timeout_s: float) -> list[Told]:
        reports: list[Told] = []
        deadline_s = time.monotonic() + timeout_s
        while not reports:
            try:
                worker, report = self._reports.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                break
            reports.extend(self._understood(worker, report))
            while not self._reports.empty():
                reports.extend(self._understood(*self._reports.get()))
        return reports

    def stop(self) -> None:
        for worker in self._workers:
            if worker is not None:
                worker.ask_to_stop()

    def close(self) -> None:
        workers = [worker for worker in self._workers if worker is not None]
        self._workers = [None] * len(self._workers)
        for worker in workers:
            worker.hang_up()
        for worker in workers:
            worker.end()

    def _end_surplus(self) -> None:
        """Those beyond the number that there should be, which have no job any more."""
        for place in range(self.num_workers, len(self._workers)):
            worker = self._workers[place]
            if worker is not None and worker.job is None:
                self._workers[place] = None
                worker.end()

    def _understood(self, worker: "_Process", report: Told | None) -> list[Told]:
        """A worker that ended is forgotten; the next job starts another in its place."""
        job = worker.job
        if report is None:
            if worker in self._workers:
                self._workers[self._workers.index(worker)] = None
                worker.end()
                if job is None:
                    return []
                self._require_live(worker)
                return [Failed(name=job.name, problem=f"Its worker died ({worker.how_it_ended}).", cause=Cause.LOST)]
            return []
        worker.has_looked |= isinstance(report, Watched | Finished)
        if not isinstance(report, Watched):
            worker.job = None
        return [report]

    def _require_live(self, worker: "_Process") -> None:
        if worker.has_spoken:
            self._num_stillborn = 0
            return
        self._num_stillborn += 1
        if self._num_stillborn >= _MOST_STILLBORN * len(self._workers):
            raise InputError(
                f"Workers cannot be started: {self._num_stillborn} of them in a row ended at once "
                f"({worker.how_it_ended}); what they said of it is above."
            )


class _Process:
    """One worker's process, and the job it has."""

    def __init__(
        self, reports: "queue.Queue[tuple[_Process, Told | None]]", threads: int, environment: Mapping[str, str]
    ) -> None:
        command = [sys.executable, "-c", _START.format(path=sys.path, threads=threads)]
        try:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **worker_environment(threads), **environment},
            )
        except OSError as error:
            raise InputError(f"A worker cannot be started ({error}); try fewer --jobs.") from error
        self.job: Job | None = None
        self.has_spoken = self.has_looked = False
        self._reports = reports
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def is_at_work(self) -> bool:
        """On a video, with a model that was loaded for this one or for one before."""
        return self.job is not None and self.has_looked

    @property
    def how_it_ended(self) -> str:
        code = self._process.returncode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def give(self, job: Job) -> None:
        self.job = job
        self._send(job)

    def ask_to_stop(self) -> None:
        self._send(_STOP)

    def hang_up(self) -> None:
        """It ends with its pipe, at once."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        self.hang_up()
        try:
            self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, what: object) -> None:
        """That it died is told by its end."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            pickle.dump(what, self._process.stdin)
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream, suppress(EOFError, pickle.UnpicklingError):
            while True:
                report: Told | str = pickle.load(stream)  # noqa: S301 - written by our own process
                self.has_spoken = True
                if not isinstance(report, str):
                    self._reports.put((self, report))
        self._reports.put((self, None))


def serve(threads: int) -> None:
    """The other process: do jobs until nobody gives any more."""
    import torch

    torch.set_num_threads(threads)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints shall not be taken for a report
    jobs: queue.Queue[Job | None] = queue.Queue()

    def tell(report: Told | str) -> None:
        pickle.dump(report, answers)
        answers.flush()

    with Worker() as worker, suppress(BrokenPipeError):
        tell(_READY)
        threading.Thread(target=_receive, args=(sys.stdin.buffer, jobs, worker), daemon=True).start()
        while (job := jobs.get()) is not None:
            tell(worker.do(job, tell))


def _receive(wishes: IO[bytes], jobs: "queue.Queue[Job | None]", worker: Worker) -> None:
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            wish = pickle.load(wishes)  # noqa: S301 - written by our own process
            if wish == _STOP:
                worker.stop()
            else:
                jobs.put(wish)
    jobs.put(None)
