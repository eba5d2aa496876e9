"""Live cameras that share one server: how alike they are served, how late, and whether drops are told."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.serving.process import ServerProcess
from benchmarks.serving.scripts import walk_frames
from benchmarks.serving.wire import WireSession

_MEMORY = "10MB"
_WARM_FRAMES = 8
"""That each session takes before anything is counted: the first ones are answered together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraFigures:
    """One session's."""

    num_sent: int
    num_taken: int
    num_dropped: int
    """That the server told of."""
    delays_s: tuple[float, ...]
    """From sending a frame to its acknowledgement, of those that were taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFigures:
    """All sessions together."""

    num_sessions: int
    fps: float
    seconds: float
    num_sent: int
    num_taken: int
    num_dropped: int
    jain: float
    """Of the frames taken: 1 where all got as many."""
    delay_p50_s: float
    delay_p99_s: float

    @property
    def is_fine(self) -> bool:
        return self.jain >= 0.95 and self.num_taken + self.num_dropped == self.num_sent


def live_pace(folder: Path, num_sessions: int, *, fps: float, seconds: float) -> LiveFigures:
    """Sessions that want the newest frame only, each sent frames at its own beat."""
    with ServerProcess(folder) as server, ThreadPoolExecutor(num_sessions) as pool:
        started_s = time.monotonic() + 1.0
        beats = [started_s + number / num_sessions / fps for number in range(num_sessions)]
        cameras = list(pool.map(lambda first_s: _film(server, first_s, fps, seconds), beats))
    delays_s = [delay_s for camera in cameras for delay_s in camera.delays_s]
    return LiveFigures(
        num_sessions=num_sessions,
        fps=fps,
        seconds=seconds,
        num_sent=sum(camera.num_sent for camera in cameras),
        num_taken=sum(camera.num_taken for camera in cameras),
        num_dropped=sum(camera.num_dropped for camera in cameras),
        jain=jain([float(camera.num_taken) for camera in cameras]),
        delay_p50_s=float(np.percentile(delays_s, 50)),
        delay_p99_s=float(np.percentile(delays_s, 99)),
    )


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all are alike, 1/n where one has all."""
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


def _film(server: ServerProcess, first_s: float, fps: float, seconds: float) -> CameraFigures:
    asked = {"language": None, "memory": _MEMORY, "delivery": "newest"}
    with WireSession(server, asked) as session:
        camera = _Camera(session, fps)
        for number in range(_WARM_FRAMES + max(1, round(seconds * fps))):
            camera.hear_until(first_s + number / fps)
            camera.send(number)
        camera.hear_rest()
        return camera.figures()


class _Camera:
    """Sends frames, and hears what becomes of them in between."""

    def __init__(self, session: WireSession, fps: float) -> None:
        self._session, self._fps = session, fps
        self._sent_s: dict[int, float] = {}
        self._delay_s: dict[int, float | None] = {}

    def send(self, number: int) -> None:
        frames = walk_frames()
        picture = frames[number % len(frames)].image
        assert picture is not None
        self._sent_s[number] = time.monotonic()
        self._session.push(number, number / self._fps, picture)

    def hear_until(self, until_s: float) -> None:
        while (event := self._session.next_event(until_s)) is not None:
            self._note(event["type"], event.get("sequence"))

    def hear_rest(self) -> None:
        while len(self._delay_s) < len(self._sent_s):
            event = self._session.next_event()
            assert event is not None, "the server did not say what became of a frame"
            self._note(event["type"], event.get("sequence"))

    def _note(self, kind: str, sequence: int | None) -> None:
        assert kind != "error"
        if kind == "input_frame.ack" and sequence is not None:
            self._delay_s[sequence] = time.monotonic() - self._sent_s[sequence]
        elif kind == "input_frame.dropped" and sequence is not None:
            self._delay_s[sequence] = None

    def figures(self) -> CameraFigures:
        counted = [delay_s for sequence, delay_s in self._delay_s.items() if sequence >= _WARM_FRAMES]
        taken = tuple(delay_s for delay_s in counted if delay_s is not None)
        return CameraFigures(
            num_sent=len(self._sent_s) - _WARM_FRAMES,
            num_taken=len(taken),
            num_dropped=len(counted) - len(taken),
            delays_s=taken,
        )
