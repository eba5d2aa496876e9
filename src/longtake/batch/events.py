"""What a batch tells: of each video, of the whole while it runs, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A video is done, or was set aside."""

    name: str
    source: str
    folder: str
    tries: int
    problem: str | None = None
    """Why it was set aside; None where it is done."""
    summary: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """A video failed, and is tried again."""

    name: str
    problem: str
    tries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the whole is."""

    num_videos: int
    done: int
    """Those that an earlier batch did too."""
    running: int
    num_workers: int
    """That there are as of now: those of a GPU may become more."""
    failed: int
    share: float
    """Of all videos that is over, parts of those that run included."""
    num_frames: int
    """That this batch looked at."""
    frames_per_s: float
    """Of the last half minute, over all workers."""
    eta_s: float | None
    """Until all are done, at the pace so far; None where nobody can know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary:
    """What came of a batch."""

    out: str
    table: str
    num_videos: int
    done: int
    skipped: int
    """Of these, done before."""
    failed: int
    num_frames: int
    """That this batch looked at."""
    seconds: float
    is_complete: bool
    """Whether it was not stopped before all were tried."""


BatchEvent = Ended | Retried | Progress
