"""What a server's sessions are made of, and what they share."""

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from jaxtyping import UInt8

from longtake.pipeline.admission import Admission, Demand
from longtake.pipeline.scheduler import Scheduler
from longtake.server.events import SessionEvent
from longtake.server.lull import Lull
from longtake.server.networks import Networks
from longtake.server.problems import RequestError
from longtake.server.quota import Quota
from longtake.server.settings import ServerSettings
from longtake.server.view_thread import ViewThread
from longtake.types import Geometry
from longtake.video.resize import Resized

_BEGAN_S = time.time() - time.monotonic()


def steady_time() -> float:
    """Seconds since 1970, as they were told once and counted from then on: a clock that is set makes no session old."""
    return _BEGAN_S + time.monotonic()


class SessionState(StrEnum):
    """Where a session is."""

    WAITING = "waiting"
    """For its first frame; nothing of it is in memory."""
    OPEN = "open"
    """It has frames, in memory."""
    SAVED = "saved"
    """On disk; the next frame or question brings it back."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """What all sessions of a server share."""

    settings: ServerSettings
    networks: Networks
    scheduler: Scheduler
    admission: Admission
    make_room: Callable[[str, Demand], None]
    """Admits a session, for whose sake idle ones may have to leave memory; called by the worker."""
    writer: Executor
    """One thread, in which what sessions record is made and written, in order."""
    saver: Executor
    """One thread, in which saves are written while sessions go on."""
    checker: Executor
    """One thread, in which what is on disk is compared with what was written, while sessions go on."""
    quota: Quota
    clock: Callable[[], float] = steady_time
    lull: Lull = field(default_factory=Lull)
    """Tells writer, saver and views when to compute."""
    views: ViewThread = field(default_factory=ViewThread)
    """Makes what viewers are sent."""
    observe: Callable[[str, SessionEvent], None] = lambda *_: None
    """Hears every event of every session, with the session's id."""
    is_ending: Callable[[], bool] = lambda: False
    """Whether the server is shutting down."""

    def require_going_on(self) -> None:
        """Refuse what a server that is shutting down would not keep."""
        if self.is_ending():
            raise RequestError("draining", "The server is shutting down; try again when it is back.", status=503)


@dataclass(frozen=True, slots=True, eq=False)
class PushedFrame:
    """A frame on its way in."""

    sequence: int
    time_s: float
    picture: UInt8[np.ndarray, "height width 3"]
    pushed_s: float = field(default_factory=time.perf_counter)
    """When it came, by the clock that steps are measured by."""


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """What the newest frame made known."""

    sequence: int
    geometry: Geometry | None


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A frame that a session took, and what came of it; or, without a frame, what came when it finished."""

    index: int
    """Of the frame, among those taken; of the next one where there is none."""
    frame: PushedFrame | None
    seen: Resized | None
    """What the network that maps saw of it; None where nothing maps."""
    geometry: Geometry | None
    """What became known, on the CPU."""
    num_final: int
    """Frames, from the first on, whose results will not change."""
