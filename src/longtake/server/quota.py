"""What all sessions together may take of the disk."""

import threading
import time
from collections.abc import Callable

from longtake.memory.budget import format_bytes
from longtake.server.problems import RequestError

_TRUSTED_S = 30.0
"""How long a measurement counts, with what is known to have been written since."""


class Quota:
    """Measures what is taken when it must, and adds up what is written in between; safe for threads."""

    def __init__(
        self, num_bytes: int, measure: Callable[[], int], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`measure` says what is taken now."""
        self.num_bytes = num_bytes
        self._measure, self._clock = measure, clock
        self._lock = threading.Lock()
        self._taken = 0
        self._measured_s: float | None = None

    def require(self, num_bytes: int) -> None:
        """Refuse what would take more than there is."""
        with self._lock:
            self._look()
            held = self._taken
        if held + num_bytes > self.num_bytes:
            could_fit = num_bytes <= self.num_bytes
            raise RequestError(
                "quota",
                f"Expected room for {format_bytes(num_bytes)} on the disk, but {format_bytes(held)} of "
                f"{format_bytes(self.num_bytes)} are taken; "
                f"{'close sessions that are no longer needed' if could_fit else 'ask for less'}.",
                status=429,
            )

    def take(self, num_bytes: int) -> bool:
        """Whether so much more may be written; it counts as written then."""
        with self._lock:
            is_known = self._measured_s is not None and self._clock() - self._measured_s < _TRUSTED_S
            if not is_known or self._taken + num_bytes > self.num_bytes:
                self._look()
            if self._taken + num_bytes > self.num_bytes:
                return False
            self._taken += num_bytes
            return True

    def _look(self) -> None:
        self._taken, self._measured_s = self._measure(), self._clock()
