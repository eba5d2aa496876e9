"""Ctrl-C as a wish to end well."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopped_by_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C calls `stop`, and what was begun is finished; a second one ends the command at once."""

    def wish(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        signal.signal(signal.SIGINT, usual)
        stop()

    usual = signal.signal(signal.SIGINT, wish)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
