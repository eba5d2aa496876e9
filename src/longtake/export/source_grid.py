"""Pictures in the source's frame as the network's pixels see them, nearest pixel by nearest pixel."""

import numpy as np
from jaxtyping import Bool, Float, Shaped

from longtake.spatial.placement import Placement


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
