"""Cameras in the pixels of the source video, for COLMAP, nerfstudio and GLB, which list them all at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from longtake.exports.frame import MappedFrame

CORNER = 0.5
"""From the centre of the first pixel, where we count from, to the image's corner, where COLMAP and nerfstudio do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinholeLens:
    """Pinhole intrinsics and image size, shared by frames while they stay the same; pixel centres are whole numbers."""

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCamera:
    """One frame's camera."""

    index: int
    timestamp_s: float
    lens: PinholeLens
    world_from_camera: Float[Tensor, "4 4"]
    """In float64."""


def different_lenses(cameras: Sequence[SourceCamera]) -> list[PinholeLens]:
    """Each lens once, in the order they came."""
    return list(dict.fromkeys(camera.lens for camera in cameras))


def source_camera(frame: MappedFrame) -> SourceCamera:
    """The camera of a frame, in the source's pixels."""
    (fx, _, cx), (_, fy, cy), _ = frame.placement.intrinsics_to_source(frame.intrinsics.double()).tolist()
    height, width, _ = frame.source_image.shape
    return SourceCamera(
        index=frame.index,
        timestamp_s=float(frame.timestamp_s),
        lens=PinholeLens(width=width, height=height, fx=fx, fy=fy, cx=cx, cy=cy),
        world_from_camera=frame.world_from_camera.double(),
    )
