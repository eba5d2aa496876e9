"""What happened in all sessions of a server, counted from their events; for those who watch over it."""

import copy
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longtake.server.events import SessionEvent

_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_FRAME_ENDS = {
    "input_frame.ack": "taken",
    "input_frame.dropped": "dropped",
    "input_frame.unreadable": "unreadable",
}
_ANSWER_ENDS = {"response.output_text.done": "answered", "response.cancelled": "cancelled"}


@dataclass(slots=True)
class Durations:
    """How many took how long."""

    bounds_s: Sequence[float] = _BOUNDS_S
    counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS_S) + 1))
    """Up to each bound, and above the last."""
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.total_s += seconds


@dataclass(slots=True)
class Figures:
    """Counts since the server began."""

    frames: Counter[str] = field(default_factory=Counter)
    """By how they ended: taken, dropped, unreadable, refused."""
    questions: Counter[str] = field(default_factory=Counter)
    """By how they ended: answered, cancelled, refused."""
    webhooks: Counter[str] = field(default_factory=Counter)
    """Findings of standing questions by how they ended: sent, failed, dropped."""
    events: Counter[str] = field(default_factory=Counter)
    """By type."""
    frame_s: Mapping[str, Durations] = field(
        default_factory=lambda: {part: Durations() for part in ("wait", "step", "overhead")}
    )
    """What frames that were taken took: until their turn came, in the network, and beside both."""
    first_token_s: Durations = field(default_factory=Durations)
    """From a question to its first word."""


class Observed:
    """Hears the events of all sessions, and keeps no more of them than counts. Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._figures = Figures()
        self._asked_s: dict[tuple[str, Any], float] = {}
        self._lock = threading.Lock()

    def read(self) -> Figures:
        """As they are now."""
        with self._lock:
            return copy.deepcopy(self._figures)

    def count_webhook(self, end: str) -> None:
        with self._lock:
            self._figures.webhooks[end] += 1

    def hear(self, session: str, event: SessionEvent) -> None:
        with self._lock:
            self._figures.events[event.type] += 1
            if event.type.startswith("input_frame.") or "sequence" in event.fields:
                self._hear_frame(event)
            elif "response" in event.fields:
                self._hear_answer((session, event.fields["response"]), event)

    def _hear_frame(self, event: SessionEvent) -> None:
        if event.fields.get("duplicate"):
            return
        self._figures.frames[_FRAME_ENDS.get(event.type, "refused")] += 1
        for part, durations in self._figures.frame_s.items():
            if f"{part}_s" in event.fields:
                durations.add(event.fields[f"{part}_s"])

    def _hear_answer(self, question: tuple[str, Any], event: SessionEvent) -> None:
        if event.type == "response.created":
            self._asked_s[question] = self._clock()
            return
        asked_s = self._asked_s.pop(question, None)
        if asked_s is not None and event.type.startswith("response.output_text."):
            self._figures.first_token_s.add(self._clock() - asked_s)
        if event.type != "response.output_text.delta":
            self._figures.questions[_ANSWER_ENDS.get(event.type, "refused")] += 1
