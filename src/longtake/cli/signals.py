"""Signals that ask a command to end: Ctrl-C, a system that shuts down, a terminal that closes."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it, and after whatever else asks for an end."""
_IMPORTING = "<frozen importlib._bootstrap>"


def interrupt(number: int, frame: FrameType | None) -> None:
    """A KeyboardInterrupt; but the end at once where modules are loaded, for some swallow it and go on half loaded.

    Nothing is lost then: what is written while anything loads can be broken off at any moment.
    """
    if _is_importing(frame):
        os._exit(INTERRUPTED)
    signal.default_int_handler(number, frame)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


@contextmanager
def handling_ends(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call this for each of them in the block; a terminal that closes is nothing to a command under nohup."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    usual = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in usual.items():
            signal.signal(number, before)


def leave(number: int, frame: FrameType | None) -> None:
    """End at once, whatever other threads do: for a command whose files a kill leaves whole."""
    del number, frame
    os._exit(INTERRUPTED)


@contextmanager
def stopped_by_signal(
    stop: Callable[[], None], again: Callable[[int, FrameType | None], object] = interrupt
) -> Iterator[None]:
    """The first of them calls `stop`, and what was begun is finished; a second one ends the command at once."""
    is_stopped = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopped
        if is_stopped:
            again(number, frame)
        is_stopped = True
        stop()

    with handling_ends(end):
        yield
