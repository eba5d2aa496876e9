"""Frozen records that cross rooms, and how they are counted in words."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def counted(number: int, noun: str) -> str:
    """`1 frame`, `2 frames`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class FrameKind(StrEnum):
    """What part a frame plays in its sequence."""

    SCALE = "scale"
    """One of the first frames, which fix the scale; remembered."""
    KEYFRAME = "keyframe"
    """Remembered."""
    PASSING = "passing"
    """Answered and forgotten."""


class TrackingState(StrEnum):
    """How well a session knows where a frame was taken, in a world that earlier frames share."""

    OK = "ok"
    WEAK = "weak"
    """It goes on, less surely."""
    LOST = "lost"
    """Nothing connects the frame with those before it, and its pose says nothing."""
    RELOCALISED = "relocalised"
    """With this frame a sub-map was joined to an earlier one: a place is known again. Those after it are ok."""


class TrackingReason(StrEnum):
    """Why a frame is weak or lost, or what else is to be known of it."""

    CUT = "cut"
    """The picture has little in common with the one before."""
    OVERLAY = "overlay"
    """A logo, a time code or black bars lie on the picture, and are left out; for that it is ok."""
    DARKNESS = "darkness"
    """There is next to nothing to be seen."""
    STANDING_STILL = "standing still"
    """Pictures stay the same, and tell nothing of depth."""
    TOO_FAST = "too fast"
    """The camera moves far between pictures."""
    NO_COMMON_VIEW = "no common view"
    """Of the same colours as the frame before, or alike, but the network sees little that both share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracking:
    """Of one frame."""

    state: TrackingState
    reason: TrackingReason | None = None
    """None where there is nothing to be said."""
    sub_map: int | None
    """Which one the frame is of, from 0; a new one begins whenever the camera was lost. None of frames that are."""

    def to_record(self) -> dict[str, str | int | None]:
        """As plain values."""
        reason = None if self.reason is None else self.reason.value
        return {"state": self.state.value, "reason": reason, "sub_map": self.sub_map}


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """What is known of some frames, in order; none, one or, for the scale frames, several.

    Lengths are in the model's own unit. Axes follow OpenCV: x right, y down, z forward; depth is along z.
    """

    frame_index: tuple[int, ...]
    """Place of each frame in the video, from 0."""
    timestamp_s: tuple[float, ...]
    kind: tuple[FrameKind, ...]
    window: tuple[int, ...]
    """Which window each frame was answered in, from 0."""
    provisional: tuple[bool, ...]
    """Whether a later window may still replace what is known of each frame."""
    pose_encoding: Float[Tensor, "frames 9"]
    """Of `world_from_camera`: centre, quaternion x y z w, vertical and horizontal field of view."""
    world_from_camera: Float[Tensor, "frames 4 4"]
    intrinsics: Float[Tensor, "frames 3 3"]
    depth: Float[Tensor, "frames height width"]
    depth_confidence: Float[Tensor, "frames height width"]
    points: Float[Tensor, "frames height width 3"] | None = None
    """Points in the world, where the checkpoint has such a head."""
    points_confidence: Float[Tensor, "frames height width"] | None = None
    camera_points: Float[Tensor, "frames height width 3"] | None = None
    """Points before the camera, where the checkpoint has such a head."""
    camera_points_confidence: Float[Tensor, "frames height width"] | None = None
    descriptor: Float[Tensor, "frames channels"] | None = None
    """What each frame looks like, to find a place again by: the mean of its patches as the encoder has them, between
    frames that look alike a small angle. None for what earlier versions saved."""
    tracking: tuple[Tracking, ...] | None = None
    """None of a session that does not look for places, for which all frames are of one world."""
    moved: "Moved | None" = None
    """What earlier frames became with the same step; None where they stay as they are."""

    def __len__(self) -> int:
        return len(self.frame_index)

    @property
    def is_keyframe(self) -> tuple[bool, ...]:
        """Whether each frame is remembered."""
        return tuple(kind is not FrameKind.PASSING for kind in self.kind)

    def frames(self, start: int, stop: int) -> "Geometry":
        """Some of the frames."""
        return replace(self, **{name: value[start:stop] for name, value in _columns(self).items()})

    @classmethod
    def join(cls, parts: Sequence["Geometry"]) -> "Geometry":
        """All frames of all parts, of which there must be one at least; what one of them lacks, all lack then."""
        columns = [_columns(part) for part in parts]
        joined: dict[str, Any] = dict.fromkeys({name for column in columns for name in column})
        for name, first in columns[0].items():
            if not all(name in column for column in columns):
                continue
            pieces = [column[name] for column in columns]
            joined[name] = torch.cat(pieces) if isinstance(first, Tensor) else sum(pieces, start=())
        return replace(parts[0], **joined)


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedSpan:
    """Neighbouring frames that moved as a whole."""

    first_frame: int
    last_frame: int
    now_from_before: Float[Tensor, "4 4"]
    """A similarity as a matrix, its rotation scaled: from where these cameras were thought to be to where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A correction of frames that were answered before."""

    version: int
    """Corrections of a session count from 1."""
    spans: tuple[MovedSpan, ...]
    geometry: Geometry
    """Those frames of all spans that are not final, as they are known now."""


def _columns(geometry: Geometry) -> dict[str, Any]:
    """The fields that have one entry for each frame."""
    values = {field.name: getattr(geometry, field.name) for field in fields(geometry)}
    return {name: value for name, value in values.items() if value is not None and name != "moved"}
