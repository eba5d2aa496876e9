"""What a server's sessions are made of, and what they share."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from jaxtyping import UInt8

from longtake.pipeline.admission import Admission, Demand
from longtake.pipeline.scheduler import Scheduler
from longtake.server.events import SessionEvent
from longtake.server.networks import Networks
from longtake.server.settings import ServerSettings
from longtake.types import Geometry


class SessionState(StrEnum):
    """Where a session is."""

    OPEN = "open"
    """In memory, or about to be: it has seen nothing."""
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
    clock: Callable[[], float] = time.time
    observe: Callable[[str, SessionEvent], None] = lambda *_: None
    """Hears every event of every session, with the session's id."""


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
