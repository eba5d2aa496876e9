"""One frame of a mapped video, as sinks take it: its pose alone, or all that is known of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from longtake.spatial.placement import Placement
from longtake.spatial.similarity import Similarity
from longtake.types import FrameKind, MovedSpan, Tracking, TrackingReason, TrackingState


class FrameStatus(StrEnum):
    """What to think of a frame's result."""

    OK = "ok"
    WEAK = "weak"
    """The network is unsure of it."""
    JUMP = "jump"
    """The camera would have moved implausibly far since the frame before."""
    CUT = "cut"
    """The picture has little in common with the one before: the scene changed."""
    REPEATED = "repeated"
    """The picture is the one before."""
    UNREADABLE = "unreadable"
    """There is no picture, and so no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PosedFrame:
    """Where the camera was when it took a frame."""

    index: int
    """Its place among the frames that were asked for, from 0."""
    timestamp_s: float
    status: FrameStatus
    world_from_camera: Float[Tensor, "4 4"]
    """In float64."""
    provisional: bool = False
    """Whether later frames may still move it."""
    tracking: Tracking | None = None
    """None of a session that does not look for places."""

    @property
    def is_blind(self) -> bool:
        """Whether the camera was lost or in the dark, so that pose and depth say nothing."""
        tracking = self.tracking
        if tracking is None:
            return False
        return tracking.state is TrackingState.LOST or tracking.reason is TrackingReason.DARKNESS

    @classmethod
    def of(cls, frame: "PosedFrame") -> "PosedFrame":
        """The pose alone of a frame, whose pixels need not be held any longer."""
        return PosedFrame(
            index=frame.index,
            timestamp_s=frame.timestamp_s,
            status=frame.status,
            world_from_camera=frame.world_from_camera,
            provisional=frame.provisional,
            tracking=frame.tracking,
        )

    def moved_along(self, spans: Sequence[MovedSpan]) -> "PosedFrame":
        """Where it is when the frames of these spans have moved."""
        return replace(self, world_from_camera=moved_along(spans, self.index, self.world_from_camera))


def moved_along(
    spans: Sequence[MovedSpan], index: int, world_from_camera: Float[Tensor, "4 4"]
) -> Float[Tensor, "4 4"]:
    """Where the camera of a frame is when the frames of these spans have moved."""
    for span in spans:
        if span.first_frame <= index <= span.last_frame:
            now_from_before = Similarity.of_matrix(span.now_from_before.double())
            world_from_camera = now_from_before.of_cameras(world_from_camera.double()).to(world_from_camera.dtype)
    return world_from_camera


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedFrame(PosedFrame):
    """A frame and its result, on the CPU. Pixels are the network's unless they are called the source's."""

    kind: FrameKind
    window: int
    intrinsics: Float[Tensor, "3 3"]
    """In float64, for the network's pixels; `placement` takes them to the source's."""
    depth: Float[np.ndarray, "height width"]
    confidence: Float[np.ndarray, "height width"]
    image: UInt8[np.ndarray, "height width 3"]
    """What the network saw."""
    source_image: UInt8[np.ndarray, "source_height source_width 3"]
    placement: Placement
    source_name: str | None = None
    """Of the picture's file without its ending, where the source is a folder of pictures."""
    descriptor: Float[np.ndarray, " channels"] | None = None
    """What the frame looks like, as `Geometry` has it; None where it is not known."""
    image_file: Path | None = None
    """A JPEG or PNG of just the source image, where there is one that may be linked or copied."""
