"""Who may open a session: all that are open fit into one budget of bytes, and into the worker's time."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from longtake.errors import BusyError, SettingError
from longtake.memory.budget import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a session takes of a machine."""

    num_bytes: int
    """Of keys and values: what was declared, and what its plan says once the size of its frames is known."""
    frames_per_s: float = 0.0
    """That it wants to be served; 0 for one that waits until there is time."""


class Admission:
    """Counts the demands of open sessions, and refuses one that would go beyond the budget. Safe for threads."""

    def __init__(
        self, budget_bytes: int, *, most_load: float = 0.9, frame_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`most_load` is the share of the worker's time that may be promised, `frame_s` what a frame takes of it."""
        if budget_bytes < 1 or not 0 < most_load < math.inf:
            raise SettingError(
                f"Expected a budget of bytes and a load above 0, but got {budget_bytes} and {most_load:g}."
            )
        self._budget_bytes, self._most_load, self._frame_s = budget_bytes, most_load, frame_s
        self._demands: dict[str, Demand] = {}
        self._lock = threading.Lock()

    @property
    def budget_bytes(self) -> int:
        return self._budget_bytes

    @property
    def num_bytes(self) -> int:
        """That are taken."""
        with self._lock:
            return self._taken_bytes()

    @property
    def load(self) -> float:
        """Share of the worker's time that is promised."""
        with self._lock:
            return self._load()

    def holds(self, name: str) -> bool:
        """Whether a session is counted."""
        with self._lock:
            return name in self._demands

    def bytes_of(self, name: str) -> int:
        """That a session is counted with; 0 for one that is not."""
        with self._lock:
            return self._demands[name].num_bytes if name in self._demands else 0

    def admit(self, name: str, demand: Demand) -> None:
        """Count a session; one that has no room is refused in one sentence, and nothing has changed."""
        with self._lock:
            held = self._demands.get(name, Demand(num_bytes=0))
            self._require_bytes(demand.num_bytes - held.num_bytes)
            self._require_time(demand.frames_per_s - held.frames_per_s)
            self._demands[name] = demand

    def shrink(self, name: str, num_bytes: int) -> None:
        """Count what a session's plan says in place of what was declared, which is never less."""
        with self._lock:
            held = self._demands[name]
            assert num_bytes <= held.num_bytes, f"{num_bytes} bytes are more than the {held.num_bytes} declared"
            self._demands[name] = Demand(num_bytes=num_bytes, frames_per_s=held.frames_per_s)

    def release(self, name: str) -> None:
        """Count a session no more; one that was not counted is fine."""
        with self._lock:
            self._demands.pop(name, None)

    def _taken_bytes(self) -> int:
        return sum(demand.num_bytes for demand in self._demands.values())

    def _load(self) -> float:
        return self._frame_s() * sum(demand.frames_per_s for demand in self._demands.values())

    def _require_bytes(self, more: int) -> None:
        taken = self._taken_bytes()
        if more > 0 and taken + more > self._budget_bytes:
            raise BusyError(
                f"Expected room for {format_bytes(more)}, but {format_bytes(self._budget_bytes - taken)} of "
                f"{format_bytes(self._budget_bytes)} are free; ask for less memory, or try again later."
            )

    def _require_time(self, more_frames_per_s: float) -> None:
        load, more = self._load(), self._frame_s() * more_frames_per_s
        if more > 0 and load + more > self._most_load:
            raise BusyError(
                f"Expected {more:.0%} of the time for {more_frames_per_s:g} frames/s, but {load:.0%} of "
                f"{self._most_load:.0%} are promised; ask for fewer frames a second, or try again later."
            )
