"""Frames and answers of one live video: answers are made between frames, and all that comes of both is one stream."""

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from longtake.errors import CancelledWorkError
from longtake.pipeline.scheduler import Scheduler, Work, WorkKind

Item = TypeVar("Item")

_LANE = "video"
_PATIENCE_S = 0.1


class _End:
    """After the last item."""


class Interleaving(Generic[Item]):
    """One worker for the frames and the answers of a video; answers are made one after another.

    `drive` is called in a thread of its own, with this, and hands out work; `items` gives what comes of it.
    """

    def __init__(self, drive: "Callable[[Interleaving[Item]], None]", *, capacity: int) -> None:
        """At most `capacity` items wait to be taken."""
        self._drive = drive
        self._scheduler = Scheduler()
        self._made: queue.Queue[Item | _End] = queue.Queue(capacity)
        self._closed = threading.Event()
        self._answers: list[Future[Any]] = []
        self._error: BaseException | None = None

    def emit(self, items: Iterable[Item]) -> None:
        """Items that need no work."""
        for item in items:
            self._put(item)

    def frame(self, steps: Iterator[Item]) -> None:
        """Do this work before answers under way go on; returns when it is done."""
        self._scheduler.submit(Work(_LANE, WorkKind.FRAME, steps, self._put)).result()
        self._require_fine()

    def answer(self, steps: Iterator[Item]) -> None:
        """Do this work between frames; returns at once."""
        self._answers.append(self._scheduler.submit(Work(_LANE, WorkKind.QUESTION, steps, self._put)))

    def items(self) -> Generator[Item, None, None]:
        """What comes of all work, until the driver has ended and all answers are made."""
        driver = threading.Thread(target=self._run, daemon=True)
        self._scheduler.start()
        driver.start()
        try:
            while not isinstance(item := self._made.get(), _End):
                yield item
        finally:
            self._closed.set()
            self._scheduler.close()
            driver.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._drive(self)
            for answer in self._answers:
                answer.result()
        except CancelledWorkError:
            pass  # nobody takes what is made any more
        except BaseException as error:  # noqa: BLE001 - handed to who takes the items, whatever it is
            self._error = error
        finally:
            self._put(_End())

    def _require_fine(self) -> None:
        """Raise what ended an answer, and let go of those that are made."""
        ended = [answer for answer in self._answers if answer.done()]
        self._answers = [answer for answer in self._answers if not answer.done()]
        for answer in ended:
            answer.result()

    def _put(self, item: Any) -> None:
        """Wait for room, unless nobody takes items any more."""
        while not self._closed.is_set():
            try:
                self._made.put(item, timeout=_PATIENCE_S)
                return
            except queue.Full:
                continue
