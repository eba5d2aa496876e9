"""Work handed out one by one to processes of one thread each, which end with the one that began them."""

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Asked = TypeVar("Asked")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Workers:
    """Who does the work: processes, or this one alone where there are none."""

    pool: ProcessPoolExecutor | None

    def as_done(self, work: Callable[[Asked], Found], tasks: Sequence[Asked]) -> Iterator[tuple[int, Found]]:
        """What came of each task, with its place among them. Work is a function of a module, or a partial of one.

        Where processes work, a task that fails leaves the others alone: its error is raised when they are done.
        """
        if self.pool is None:
            yield from ((place, work(task)) for place, task in enumerate(tasks))
            return
        places: dict[Future[bytes], int] = {
            self.pool.submit(_done, pickle.dumps((work, task))): place for place, task in enumerate(tasks)
        }
        for future in as_completed(places):
            if future.exception() is None:
                yield places[future], pickle.loads(future.result())  # noqa: S301 - of our own process
        for future in places:
            future.result()

    def in_order(
        self, work: Callable[[Asked], Found], tasks: Sequence[Asked], progress: Callable[[int], None]
    ) -> list[Found]:
        """What came of each task, in their order; a step for each."""
        found: dict[int, Found] = {}
        for place, result in self.as_done(work, tasks):
            found[place] = result
            progress(1)
        return [found[place] for place in range(len(tasks))]


@contextmanager
def open_workers(processes: int) -> Iterator[Workers]:
    """So many processes, begun with the first work; 1 is this process, its threads as they are."""
    if processes == 1:
        yield Workers(None)
        return
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))  # read when a process begins
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        yield Workers(pool)
    finally:
        pool.shutdown(cancel_futures=True)  # whoever is interrupted does not wait for what nobody has begun
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _begin() -> None:
    """In each process: one thread, and no longer than the process that began it."""
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _done(packed: bytes) -> bytes:
    """Packed as bytes both ways: as they are, tensors would be shared, a file for each."""
    work: Callable[[Any], Any]
    work, task = pickle.loads(packed)  # noqa: S301 - of our own process
    return pickle.dumps(work(task))
