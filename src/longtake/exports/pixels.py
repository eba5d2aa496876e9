"""A frame's pixels on another grid: the network's, the source's, or a picture of the source as the network sees it."""

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Shaped
from PIL import Image

from longtake.exports.frame import MappedFrame
from longtake.spatial.placement import Placement


def in_model_pixels(frame: MappedFrame) -> MappedFrame:
    """As the network saw it; no depth where it saw what was put around the source."""
    return replace(frame, depth=np.where(shows_source(frame.placement, frame.depth.shape), frame.depth, 0))


def in_source_pixels(frame: MappedFrame, size: tuple[int, int]) -> MappedFrame:
    """Depth and confidence of the nearest of the network's pixels, for a source of this (height, width).

    A source that changes its size is taken as if it had been resized.
    """
    height, width = size
    placement = _resized(frame.placement, size)
    image = frame.source_image
    if image.shape[:2] != size:
        image = np.array(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC))
    return replace(
        frame,
        intrinsics=placement.intrinsics_to_source(frame.intrinsics),
        image=image,
        source_image=image,
        depth=placement.depth_to_source(frame.depth),
        confidence=placement.depth_to_source(frame.confidence),
        placement=Placement(width, height, 1.0, 1.0),
    )


def shows_source(placement: Placement, size: tuple[int, int]) -> Bool[np.ndarray, "height width"]:
    """Which of the network's pixels, (height, width) of them, show the source and not what was put around it."""
    rows, columns = _places(placement, size)
    shows: Bool[np.ndarray, "height width"] = _is_inside(rows)[:, None] & _is_inside(columns)
    return shows


def seen_by_network(
    picture: Shaped[np.ndarray, "rows columns"], placement: Placement, size: tuple[int, int]
) -> Shaped[np.ndarray, "height width"]:
    """A picture that covers the whole source, at any resolution; outside the source its border goes on."""
    rows, columns = _places(placement, size)
    height, width = picture.shape
    row = np.clip(np.floor(rows * height), 0, height - 1).astype(np.int64)
    column = np.clip(np.floor(columns * width), 0, width - 1).astype(np.int64)
    seen: Shaped[np.ndarray, "height width"] = picture[row[:, None], column]
    return seen


def _places(
    placement: Placement, size: tuple[int, int]
) -> tuple[Float[np.ndarray, " height"], Float[np.ndarray, " width"]]:
    """Where the centres of rows and columns lie in the source, from 0 at its first edge to 1 at its last."""
    height, width = size
    rows = (np.arange(height) + 0.5 - placement.offset_y) / placement.scale_y / placement.source_height
    columns = (np.arange(width) + 0.5 - placement.offset_x) / placement.scale_x / placement.source_width
    return rows, columns


def _is_inside(place: Float[np.ndarray, " pixels"]) -> Bool[np.ndarray, " pixels"]:
    return (place >= 0) & (place < 1)


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
