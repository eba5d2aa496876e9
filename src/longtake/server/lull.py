"""When threads beside the worker may compute: not while one frame's result leaves the server and the next comes in.

worker    a step ──────────▶ told ─▶         ─▶ the next step ────────▶ told ─▶
sockets                          sent   read                                sent ...
others    ├ may compute ───┤                  ├ may compute ──────────┤        ├ also without a next frame, soon

Where there are no more cores than the network uses, a thread that computes is not set aside for those of sockets before
its time is over, a few milliseconds, and a frame would wait for that on its way in and on its way out.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_GRACE_S = 0.005
"""After a step: its result is sent, and the frame that a client sends upon it is read."""
_PATIENCE_S = 0.02
"""After which others compute all the same, should steps be so short that none finds its moment."""


class Lull:
    """The worker says when it computes; others wait for that before each piece of theirs. Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._closed_until_s = 0.0
        self._changed = threading.Condition()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """A step of the worker's, in which others may compute as well."""
        with self._changed:
            self._closed_until_s = 0.0
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._closed_until_s = self._clock() + _GRACE_S

    def wait(self) -> None:
        """Return when it is a good time to compute: at once, or a few milliseconds later."""
        until_s = self._clock() + _PATIENCE_S
        with self._changed:
            while (left_s := min(self._closed_until_s, until_s) - self._clock()) > 0:
                self._changed.wait(left_s)
