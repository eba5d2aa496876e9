"""What runs on a Ray cluster: a worker that answers while it works."""

import os
import sys
from contextlib import suppress

from longtake import __version__
from longtake.batch.job import Job, Told, Watched
from longtake.batch.worker import Worker


class Actor:
    """One worker; how far it is or to stop, a second thread of it hears."""

    def __init__(self, threads: int, folder: str) -> None:
        """`folder` is where the batch was started: paths may be relative to it."""
        with suppress(OSError):
            os.chdir(folder)
        self._threads, self._worker = threads, Worker()
        self._watched: Watched | None = None

    def ready(self) -> tuple[str, str, int]:
        """Which longtake and which Python it has, and its process."""
        return __version__, python_version(), os.getpid()

    def do(self, job: Job) -> Told:
        import torch

        torch.set_num_threads(self._threads)
        self._watched = None
        return self._worker.do(job, self._note)

    def watched(self) -> Watched | None:
        return self._watched

    def stop(self) -> None:
        self._worker.stop()

    def _note(self, report: Told) -> None:
        if isinstance(report, Watched):
            self._watched = report


def free_gpu_bytes() -> int:
    """Of the GPU that who asks has."""
    import torch

    return torch.cuda.mem_get_info()[0]


def python_version() -> str:
    """As far as it must be the same everywhere."""
    return ".".join(map(str, sys.version_info[:2]))
