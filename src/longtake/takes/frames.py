"""One frame of a take: as it is handed to the writer, and its line of `frames.jsonl`."""

import json
import math
from dataclasses import asdict, dataclass

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from longtake.errors import InputError
from longtake.spatial.placement import Placement
from longtake.takes.fields import JsonObject
from longtake.takes.header import placement_from_json, placement_to_json
from longtake.types import Tracking, TrackingReason, TrackingState

_ROTATION_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Visible:
    """A thing and how much of it a frame shows."""

    thing: str
    pixels: int
    """Pixels that show it; hidden parts do not count."""
    column: float
    """Mean column of those pixels over the image's width: 0 left edge, 1 right edge."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.column):
            raise InputError(f"Expected a column where {self.thing} is visible, but got {self.column}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeFrame:
    """All that is known of one frame; what the take's header promises must be there, nothing else may be."""

    index: int
    """Place of the frame in its video, from 0; may skip some, never goes back."""
    timestamp_s: float
    world_from_camera: Float[Tensor, "4 4"]
    intrinsics: Float[Tensor, "3 3"]
    image: UInt8[np.ndarray, "height width 3"] | None = None
    depth: Float[np.ndarray, "height width"] | None = None
    """Along z; zero, negative, NaN and infinite are invalid."""
    confidence: Float[np.ndarray, "height width"] | None = None
    room: str | None = None
    visible: tuple[Visible, ...] | None = None
    status: str | None = None
    keyframe: bool | None = None
    window: int | None = None
    tracking: Tracking | None = None
    source: Placement | None = None
    """Where the video's own pixels lie in this frame's, where the take's header does not say it."""
    source_name: str | None = None
    """Of the picture's file without its ending, where the video is a folder of pictures."""
    descriptor: Float[np.ndarray, " channels"] | None = None
    """By which a keyframe is found again, where the take's header promises them."""

    def require_camera(self) -> None:
        """Refuse a time that is no number, a pose that is not rigid, intrinsics that are not of a pinhole camera."""
        if self.index < 0 or not math.isfinite(self.timestamp_s):
            raise InputError(
                f"Expected a frame with an index and a time, but got {self.index} at {self.timestamp_s} s."
            )
        if not _is_rigid(self.world_from_camera):
            raise InputError(
                f"Expected a rotation and a translation as the pose of frame {self.index}, but got another."
            )
        focal_x, focal_y, center_x, center_y = _four_numbers(self.intrinsics)
        plain = _matrix_of((focal_x, focal_y, center_x, center_y))
        if not (
            torch.equal(plain, self.intrinsics.double()) and focal_x > 0 and focal_y > 0 and plain.isfinite().all()
        ):
            raise InputError(
                f"Expected focal lengths greater than 0, a principal point and no skew for frame {self.index}, but got "
                f"{self.intrinsics.tolist()}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameRecord:
    """One line of `frames.jsonl`."""

    index: int
    timestamp_s: float
    intrinsics: tuple[float, ...]
    """Focal lengths x and y, principal point x and y, in pixels."""
    room: str | None = None
    visible: tuple[Visible, ...] | None = None
    status: str | None = None
    keyframe: bool | None = None
    window: int | None = None
    tracking: Tracking | None = None
    source: Placement | None = None
    source_name: str | None = None

    @classmethod
    def of(cls, frame: TakeFrame) -> "FrameRecord":
        return cls(
            index=frame.index,
            timestamp_s=frame.timestamp_s,
            intrinsics=_four_numbers(frame.intrinsics),
            room=frame.room,
            visible=frame.visible,
            status=frame.status,
            keyframe=frame.keyframe,
            window=frame.window,
            tracking=frame.tracking,
            source=frame.source,
            source_name=frame.source_name,
        )

    @classmethod
    def parse(cls, line: bytes, where: str) -> "FrameRecord":
        record = JsonObject.parse(line, where)
        return cls(
            index=record.integer("index"),
            timestamp_s=record.number("timestamp_s"),
            intrinsics=record.numbers("intrinsics", 4),
            room=record.optional("room", record.text),
            visible=record.optional("visible", lambda name: tuple(map(_visible, record.objects(name)))),
            status=record.optional("status", record.text),
            keyframe=record.optional("keyframe", record.boolean),
            window=record.optional("window", record.integer),
            tracking=record.optional("tracking", lambda name: _tracking(record.object(name))),
            source=record.optional("source", lambda name: placement_from_json(record.object(name))),
            source_name=record.optional("source_name", record.text),
        )

    def line(self) -> str:
        """The record as JSON, without what is not known."""
        source = None if self.source is None else placement_to_json(self.source)
        tracking = None if self.tracking is None else self.tracking.to_record()
        known = asdict(self) | {"source": source, "tracking": tracking}
        return json.dumps({name: value for name, value in known.items() if value is not None}, allow_nan=False)

    def intrinsics_matrix(self) -> Float[Tensor, "3 3"]:
        return _matrix_of(self.intrinsics)


def _visible(record: JsonObject) -> Visible:
    return Visible(record.text("thing"), record.integer("pixels"), record.number("column"))


def _tracking(record: JsonObject) -> Tracking:
    return Tracking(
        state=record.choice("state", TrackingState),
        reason=record.optional("reason", lambda name: record.choice(name, TrackingReason)),
        sub_map=record.optional("sub_map", record.integer),
    )


def _four_numbers(intrinsics: Float[Tensor, "3 3"]) -> tuple[float, ...]:
    focal_x, focal_y = intrinsics[0, 0].item(), intrinsics[1, 1].item()
    return float(focal_x), float(focal_y), float(intrinsics[0, 2]), float(intrinsics[1, 2])


def _matrix_of(numbers: tuple[float, ...]) -> Float[Tensor, "3 3"]:
    focal_x, focal_y, center_x, center_y = numbers
    return torch.tensor([[focal_x, 0, center_x], [0, focal_y, center_y], [0, 0, 1]], dtype=torch.float64)


def _is_rigid(pose: Float[Tensor, "4 4"]) -> bool:
    """Whether it is finite, its upper left a rotation and its last row 0 0 0 1."""
    pose = pose.double().cpu()
    rotation = pose[:3, :3]
    orthonormal = torch.allclose(rotation @ rotation.T, torch.eye(3, dtype=torch.float64), atol=_ROTATION_TOLERANCE)
    last_row = torch.equal(pose[3], torch.tensor([0, 0, 0, 1], dtype=torch.float64))
    return bool(pose.isfinite().all()) and orthonormal and last_row and bool(torch.linalg.det(rotation) > 0)
