"""A take, a result or the truth, read back as mapped frames, one at a time, for any sink."""

from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from longtake.errors import InputError
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.spatial.placement import Placement
from longtake.takes.images import ImageFiles
from longtake.takes.take import Take
from longtake.types import FrameKind

_GREY = 128


def saved_frames(take: Take) -> Iterator[MappedFrame]:
    """All frames in order; what a take lacks is replaced: depth by none, confidence by 1, images by grey.

    A take in the network's pixels does not hold the video's images, so they are made of the network's.
    """
    images = repeat(None) if take.header.images is None else take.images()
    for position, image in zip(range(len(take)), images, strict=False):
        yield saved_frame(take, position, image)


def saved_frame(take: Take, position: int, image: UInt8[np.ndarray, "height width 3"] | None = None) -> MappedFrame:
    """One frame; all grey without an image."""
    record, placement = take.records[position], source_placement(take, position)
    has_depth, has_confidence = take.header.depth is not None, take.header.confidence
    source_size = placement.source_height, placement.source_width
    return MappedFrame(
        index=record.index,
        timestamp_s=record.timestamp_s,
        status=_status(take, position),
        kind=FrameKind.PASSING if record.keyframe is False else FrameKind.KEYFRAME,
        window=record.window or 0,
        world_from_camera=take.trajectory.world_from_camera[position],
        intrinsics=take.intrinsics[position],
        depth=take.depth(position) if has_depth else np.zeros(take.header.size, np.float32),
        confidence=take.confidence(position) if has_confidence else np.ones(take.header.size, np.float32),
        image=_grey(take.header.size) if image is None else image,
        source_image=_grey(source_size) if image is None else _as_source(image, placement),
        placement=placement,
        source_name=record.source_name,
        tracking=record.tracking,
        image_file=None if image is None else _image_file(take, position, placement),
    )


def source_placement(take: Take, position: int) -> Placement:
    """Where the video's pixels lie in a frame's; they are the same where the take does not say."""
    return take.records[position].source or take.header.source or same_pixels(take.header.size)


def position_of(take: Take, index: int) -> int:
    """Where in a take the frame of this index is."""
    for position, record in enumerate(take.records):
        if record.index == index:
            return position
    raise InputError(
        f"Expected a frame with index {index} in {take.folder}, but it has none; its frames, {len(take)} in all, are "
        f"from {take.records[0].index} to {take.records[-1].index}."
    )


def _status(take: Take, position: int) -> FrameStatus:
    status = take.records[position].status
    if status is not None and status not in list(FrameStatus):
        raise InputError(
            f"Expected {', '.join(FrameStatus)} as the status of frame {take.records[position].index} in "
            f"{take.folder}, but got '{status}'; make the take again."
        )
    return FrameStatus(status or FrameStatus.OK)


def same_pixels(size: tuple[int, int]) -> Placement:
    """The placement of a source of this (height, width) that was not resized."""
    height, width = size
    return Placement(width, height, 1.0, 1.0)


def _image_file(take: Take, position: int, placement: Placement) -> Path | None:
    """The take's own file of a frame, if the source's pixels are those of the take."""
    files = take.header.images
    if files is None or files is ImageFiles.VIDEO or placement != same_pixels(take.header.size):
        return None
    return take.folder / files.format(index=take.records[position].index)


def _grey(size: tuple[int, int]) -> UInt8[np.ndarray, "height width 3"]:
    """A grey image that takes no memory, as a broadcast of one value."""
    return np.broadcast_to(np.uint8(_GREY), (*size, 3))


def _as_source(
    image: UInt8[np.ndarray, "height width 3"], placement: Placement
) -> UInt8[np.ndarray, "source_height source_width 3"]:
    """An image at the source's size, black where the source was cut off."""
    if placement == same_pixels(image.shape[:2]):
        return image
    model_from_source = (placement.scale_x, 0.0, placement.offset_x, 0.0, placement.scale_y, placement.offset_y)
    resized = Image.fromarray(image).transform(
        (placement.source_width, placement.source_height),
        Image.Transform.AFFINE,
        model_from_source,
        Image.Resampling.BILINEAR,
    )
    return np.array(resized)
