"""What a session's memory holds, told as the event `memory`: a few times a second, with what left it since."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from longtake.api.dialogue_session import DialogueSession
from longtake.api.geometry_session import GeometrySession
from longtake.memory.policy import Segment
from longtake.server.events import EventLog
from longtake.server.watchers import Watcher, live_bytes

_USUAL_S = 0.5
_AFTER_FORGETTING_S = 0.1
_MOST_SPANS = 64
_MOST_TIMES = 8192


class MemoryReport:
    """Of one session; called by the worker, after each frame. `note` hears of each number of bytes that is told."""

    def __init__(
        self, events: EventLog, clock: Callable[[], float] = time.monotonic, *, note: Callable[[int], None]
    ) -> None:
        self._events, self._clock, self._note = events, clock, note
        self._told_s: float | None = None
        self._segments: tuple[Segment, ...] = ()
        self._times: deque[tuple[int, float]] = deque(maxlen=_MOST_TIMES)
        """Indices and times of the frames of the current window."""
        self._forgotten: list[dict[str, Any]] = []
        self._untold: tuple[int, float] | None = None
        """Index and time of the newest frame, while nobody was told of the memory after it."""

    def tell(self, watcher: Watcher, index: int, time_s: float) -> None:
        """Look at the memory after a frame; told is at most twice a second, or soon after something was forgotten."""
        self._times.append((index, time_s))
        self._untold = (index, time_s)
        if watcher.dialogue is not None:
            self._look_at_segments(watcher.dialogue.segments)
        now_s = self._clock()
        wait_s = _AFTER_FORGETTING_S if self._forgotten else _USUAL_S
        if self._told_s is None or now_s - self._told_s >= wait_s:
            self._told_s = now_s
            self._tell(watcher, index, time_s)

    def tell_last(self, watcher: Watcher) -> None:
        """Where no frame comes any more, what the newest one left, however soon it came after one that was told of."""
        if self._untold is not None:
            self._tell(watcher, *self._untold)

    def _tell(self, watcher: Watcher, index: int, time_s: float) -> None:
        mapping, dialogue = watcher.mapping, watcher.dialogue
        if mapping is not None:
            self._look_at_window(mapping.info.first_frame)
        held = live_bytes(watcher)
        self._note(held)
        self._events.add(
            "memory",
            time_s=time_s,
            index=index,
            bytes=held,
            map=None if mapping is None else _map_record(mapping),
            dialogue=None if dialogue is None else _dialogue_record(dialogue),
            forgotten=self._forgotten[-_MOST_SPANS:],
        )
        self._forgotten, self._untold = [], None

    def _look_at_window(self, first_frame: int) -> None:
        """Frames before the current window were forgotten by the map."""
        left = []
        while self._times and self._times[0][0] < first_frame:
            left.append(self._times.popleft())
        if left:
            frames = {"first": left[0][0], "last": left[-1][0]}
            self._forgotten.append({"of": "map", "start_s": left[0][1], "end_s": left[-1][1], **frames})

    def _look_at_segments(self, now: tuple[Segment, ...]) -> None:
        before, self._segments = self._segments, now
        if before is now:
            return
        held = {segment.first for segment in now}
        gone = [segment for segment in before if segment.first not in held]
        for start_s, end_s in spans_of(gone):
            self._forgotten.append({"of": "dialogue", "start_s": start_s, "end_s": end_s})


def spans_of(segments: Sequence[Segment], until_s: float | None = None) -> list[tuple[float, float]]:
    """From the first to the last piece of each run without a gap, the last one to `until_s` where that is given.

    Where there are too many, the shortest gaps are passed over.
    """
    spans: list[tuple[float, float]] = []
    next_token: int | None = None
    for segment in segments:
        if spans and segment.first == next_token:
            spans[-1] = (spans[-1][0], segment.time_s)
        else:
            spans.append((segment.time_s, segment.time_s))
        next_token = segment.first + segment.num_tokens
    if spans and until_s is not None:
        spans[-1] = (spans[-1][0], until_s)
    return _fewer(spans)


def _fewer(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    gaps = sorted(range(1, len(spans)), key=lambda place: spans[place - 1][1] - spans[place][0])
    starts = [0, *sorted(gaps[: _MOST_SPANS - 1])]
    stops = [*starts[1:], len(spans)]
    return [(spans[start][0], spans[stop - 1][1]) for start, stop in zip(starts, stops, strict=True)] if spans else []


def _map_record(mapping: GeometrySession) -> dict[str, Any]:
    info = mapping.info
    kept = info.num_kept if info.capacity is None else min(info.num_kept, info.capacity)
    return {"kept": kept, "capacity": info.capacity, "window": info.num_windows - 1}


def _dialogue_record(dialogue: DialogueSession) -> dict[str, Any]:
    info = dialogue.info
    spans: Iterable[tuple[float, float]] = spans_of(dialogue.segments, info.seen_until_s)
    return {"tokens": info.num_tokens, "capacity": info.num_places, "spans": [list(span) for span in spans]}
