"""A frame's pixels as a take keeps them: the network's, or the source's."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from longtake.export.frame import MappedFrame
from longtake.export.source_grid import shows_source
from longtake.spatial.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePixels:
    """Image, depth and confidence of one size, and the intrinsics that go with it."""

    intrinsics: Float[Tensor, "3 3"]
    image: UInt8[np.ndarray, "height width 3"]
    depth: Float[np.ndarray, "height width"]
    confidence: Float[np.ndarray, "height width"]


def model_pixels(frame: MappedFrame) -> FramePixels:
    """What the network saw and said; no depth where it saw what was put around the source."""
    shown = shows_source(frame.placement, frame.depth.shape)
    return FramePixels(
        intrinsics=frame.intrinsics,
        image=frame.image,
        depth=np.where(shown, frame.depth, 0),
        confidence=frame.confidence,
    )


def source_pixels(frame: MappedFrame, size: tuple[int, int]) -> FramePixels:
    """What the network said, nearest pixel by nearest pixel, for a source of this (height, width).

    A source that changes its size is taken as if it had been resized.
    """
    placement = _resized(frame.placement, size)
    height, width = size
    image = frame.source_image
    if image.shape[:2] != size:
        image = np.array(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC))
    return FramePixels(
        intrinsics=placement.intrinsics_to_source(frame.intrinsics),
        image=image,
        depth=placement.depth_to_source(frame.depth),
        confidence=placement.depth_to_source(frame.confidence),
    )


def _resized(placement: Placement, size: tuple[int, int]) -> Placement:
    """Where the source would lie if it had this (height, width)."""
    height, width = size
    return replace(
        placement,
        source_width=width,
        source_height=height,
        scale_x=placement.scale_x * (placement.source_width / width),
        scale_y=placement.scale_y * (placement.source_height / height),
    )
