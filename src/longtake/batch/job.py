"""What a worker is given, and what it tells: values that cross processes and machines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from longtake.api.map_request import MapRequest
from longtake.batch.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class MapJob:
    """A video, or a span of one, to be mapped into a folder."""

    name: str
    """Of its folder."""
    source: str
    request: MapRequest
    storage: Storage
    asked: Mapping[str, Any] = field(default_factory=dict)
    """What is kept with the result, to know it by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinJob:
    """Spans of one video, all of them mapped, to be laid into one world."""

    name: str
    source: str
    spans: tuple[str, ...]
    """Names of their folders, in the order of time."""
    request: MapRequest
    storage: Storage
    asked: Mapping[str, Any] = field(default_factory=dict)
    """As of a `MapJob`."""


Job = MapJob | JoinJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """How many frames of a job its worker has looked at so far."""

    name: str
    num_frames: int
    num_before: int = 0
    """That others had looked at, where it goes on after them."""
    num_in_all: int | None = None
    """None where nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """All of it lies where it was asked for."""

    name: str
    num_frames: int
    """That its worker looked at; others may have done so before."""
    summary: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """It was asked to end, and can go on."""

    name: str


class Cause(StrEnum):
    """Of a failure: what it says of another try."""

    CHANCE = "chance"
    """It may pass."""
    LOST = "lost"
    """Its worker died: another may come further."""
    STORAGE = "storage"
    """What was mapped cannot be written: there may be room later, but not for the next video."""
    VIDEO = "video"
    """Of this video or what was asked of it: the next try would come to the same."""
    WORKER = "worker"
    """What computes cannot be had, such as the model: no video that asks for the same can be mapped."""
    MASKS = "masks"
    """Nor one that asks for the same masks, or the same sky model, which are not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """It was given up, and why: in a sentence; also where its worker died."""

    name: str
    problem: str
    cause: Cause = Cause.CHANCE


Told = Watched | Finished | Stopped | Failed
