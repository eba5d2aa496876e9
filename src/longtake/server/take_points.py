"""Points of a take on disk, and its last frame, as viewers of the session that wrote it are sent them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from longtake.exports.saved import saved_frame
from longtake.server.points import PointChunk, PointMaker
from longtake.server.previews import KnownDepth, Snapshot, small_picture
from longtake.takes.images import ImageFiles
from longtake.takes.take import Take, read_take

_MOST_FRAMES = 600
"""Of a longer take so many, evenly spread."""


def chunks_of_take(
    folder: Path,
    maker: PointMaker | None = None,
    *,
    as_known: Callable[[Take], Take] = lambda take: take,
    most_frames: int = _MOST_FRAMES,
) -> Iterator[tuple[PointChunk, Float[np.ndarray, "4 4"]]]:
    """A chunk of each frame that shows something new, with the pose of its camera; frames are read one at a time.

    `maker` knows what was sent already, and learns what these are. Each frame is read of what `as_known` makes of the
    take at that moment.
    """
    take, making = read_take(folder), maker or PointMaker()
    step = -(-len(take) // most_frames)
    for position, image in _images(take, step):
        frame = saved_frame(as_known(take), position, image)
        if not take.header.confidence:
            frame = replace(frame, confidence=np.full(take.header.size, np.inf, np.float32))
        chunk = making.chunk(frame)
        if chunk is not None:
            yield chunk, frame.world_from_camera.numpy()


def last_seen(folder: Path) -> Snapshot:
    """What previews of the last frame of a take show."""
    take = read_take(folder)
    frame = saved_frame(take, -1, None if take.header.images is None else take.image(-1))
    known = KnownDepth(frame=frame.index, time_s=frame.timestamp_s, depth=frame.depth, confidence=frame.confidence)
    has_depth = take.header.depth is not None
    image = small_picture(np.ascontiguousarray(frame.image))
    return Snapshot(frame=frame.index, time_s=frame.timestamp_s, image=image, known=known if has_depth else None)


def _images(take: Take, step: int) -> Iterator[tuple[int, UInt8[np.ndarray, "height width 3"] | None]]:
    """One frame in so many, by its position; None where the take has no images."""
    if take.header.images is ImageFiles.VIDEO:
        yield from islice(enumerate(take.images()), 0, None, step)
        return
    for position in range(0, len(take), step):
        yield position, None if take.header.images is None else take.image(position)
