"""Work done ahead of who asks for it: an iterator that runs in a thread of its own, behind a bounded queue."""

import threading
from collections import deque
from collections.abc import Generator, Iterator
from enum import StrEnum
from typing import Generic, TypeVar

Item = TypeVar("Item")


class WhenFull(StrEnum):
    """What happens to a new item while the queue is full."""

    BLOCK = "block"
    """Its maker waits; nothing is lost."""
    NEWEST_WINS = "newest-wins"
    """The oldest item in the queue is dropped and counted."""


class Prefetcher(Iterator[Item], Generic[Item]):
    """Items of a generator, made in a thread while earlier ones are in use; at most `capacity` wait.

    An error of the maker reaches the taker after the items made before it. `close`, or leaving a `with` block, stops
    the maker after its current item and closes the generator.
    """

    def __init__(self, items: Generator[Item, None, None], capacity: int, when_full: WhenFull = WhenFull.BLOCK) -> None:
        assert capacity > 0
        self.num_dropped = 0
        self._items, self._capacity, self._when_full = items, capacity, when_full
        self._waiting: deque[Item] = deque()
        self._changed = threading.Condition()
        self._closed, self._ended = False, False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._make, daemon=True)
        self._thread.start()

    def __next__(self) -> Item:
        with self._changed:
            while not self._waiting and not self._ended:
                self._changed.wait()
            if self._waiting:
                item = self._waiting.popleft()
                self._changed.notify_all()
                return item
        error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def __enter__(self) -> "Prefetcher[Item]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the maker and wait for it."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._thread.join()

    def _make(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    break
        except BaseException as error:  # noqa: BLE001 - handed to the taker, whatever it is
            self._error = error
        finally:
            self._finish()

    def _finish(self) -> None:
        try:
            self._items.close()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, item: Item) -> bool:
        """Whether more items are wanted."""
        with self._changed:
            while len(self._waiting) >= self._capacity and not self._closed:
                if self._when_full is WhenFull.NEWEST_WINS:
                    self._waiting.popleft()
                    self.num_dropped += 1
                else:
                    self._changed.wait()
            if not self._closed:
                self._waiting.append(item)
                self._changed.notify_all()
            return not self._closed
