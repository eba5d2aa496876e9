"""Points of two pictures that look alike: corners, described by the directions of edges and the tints around them.

4 x 4 squares around a corner, of 8 directions each (after Lowe, IJCV 2004), upright as cameras are held; 2 x 2 tints.
Pictures are looked at in two sizes, for whoever comes nearer sees the same thing larger.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from longtake.places.pictures import blurred, sampled

_SIZES = (1.0, 0.7)
_MOST_CORNERS = 500
"""Of a picture as it is; of a smaller one in proportion."""
_BORDER = 4
_WEAKEST = 1e-7
"""Change of brightness around a corner, squared, along the direction in which it is least."""
_SQUARE = 3
"""Pixels along each side of one of the 4 x 4 squares."""
_DIRECTIONS = 8
"""A power of two."""
_HIGHEST = 0.2
"""Of one number of a descriptor of length 1, so that one strong edge does not outweigh all others."""
_TINT = 2.0
_STEPS = 255
"""Descriptors are rounded to whole numbers, of which this is 1: products of such numbers are exact in any order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corners:
    """Where they are, and how they look."""

    pixels: Float64[np.ndarray, "corners 2"]
    """x before y."""
    descriptors: Float32[np.ndarray, "corners channels"]
    """Whole numbers."""


def find_corners(colours: Float64[np.ndarray, "height width 3"]) -> Corners:
    """Of a picture in all sizes."""
    height, width = colours.shape[:2]
    pixels, descriptors = [], []
    for size in _SIZES:
        picture = colours if size == 1 else _shrunken(colours, round(height * size), round(width * size))
        total = picture[..., 0] + picture[..., 1] + picture[..., 2]
        rows, columns = _strongest(total / 3, int(_MOST_CORNERS * size))
        descriptors.append(_described(picture, total, rows, columns))
        larger = np.array([width / picture.shape[1], height / picture.shape[0]])
        pixels.append((np.stack([columns, rows], axis=1) + 0.5) * larger - 0.5)
    inside = np.clip(np.concatenate(pixels), 0, [width - 1, height - 1])
    return Corners(pixels=inside, descriptors=np.concatenate(descriptors))


def match(old: Corners, new: Corners) -> Int64[np.ndarray, "pairs 2"]:
    """Corners of which each is the other's nearest, by their places among the old and the new."""
    if not (len(old.pixels) and len(new.pixels)):
        return np.zeros((0, 2), dtype=np.int64)
    a, b = old.descriptors, new.descriptors
    products = a @ (-2 * b).T  # distances, less what all of a row or all of a column have in common
    nearest = (products + (b * b).sum(axis=1)).argmin(axis=1)
    products += (a * a).sum(axis=1)[:, None]
    back = products.argmin(axis=0)
    places = np.arange(len(a))
    is_mutual = back[nearest] == places
    return np.stack([places[is_mutual], nearest[is_mutual]], axis=1)


def _shrunken(
    colours: Float64[np.ndarray, "height width 3"], rows: int, columns: int
) -> Float64[np.ndarray, "rows columns 3"]:
    height, width = colours.shape[:2]
    y, x = (np.arange(rows) + 0.5) * height / rows - 0.5, (np.arange(columns) + 0.5) * width / columns - 0.5
    places = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    soft = (colours + blurred(colours, 1)) / 2
    return sampled(soft, places).reshape(rows, columns, 3)


def _strongest(
    brightness: Float64[np.ndarray, "height width"], most: int
) -> tuple[Int64[np.ndarray, " corners"], Int64[np.ndarray, " corners"]]:
    """Rows and columns of the strongest corners (Shi and Tomasi, CVPR 1994) that no neighbour exceeds."""
    down, right = np.gradient(brightness)
    products = blurred(np.stack([right * right, right * down, down * down], axis=-1), 2)
    a, b, c = products[..., 0], products[..., 1], products[..., 2]
    strength = (a + c) / 2 - np.sqrt(((a - c) / 2) ** 2 + b * b)
    down_3 = np.maximum(np.maximum(strength[:-2], strength[1:-1]), strength[2:])
    highest = np.zeros_like(strength)
    highest[1:-1, 1:-1] = np.maximum(np.maximum(down_3[:, :-2], down_3[:, 1:-1]), down_3[:, 2:])
    inside = np.zeros(strength.shape, dtype=bool)
    inside[_BORDER:-_BORDER, _BORDER:-_BORDER] = True
    rows, columns = np.nonzero((strength == highest) & (strength > _WEAKEST) & inside)
    order = np.argsort(-strength[rows, columns], kind="stable")[:most]
    return rows[order], columns[order]


def _described(
    colours: Float64[np.ndarray, "height width 3"],
    total: Float64[np.ndarray, "height width"],
    rows: Int64[np.ndarray, " corners"],
    columns: Int64[np.ndarray, " corners"],
) -> Float32[np.ndarray, "corners channels"]:
    edges = _around(blurred(blurred(_edges(total / 3), 1), 1), rows, columns, _SQUARE * (np.arange(4) - 1.5))
    edges = np.minimum(_of_length_1(edges), _HIGHEST)
    tints = colours[..., :2] / (total[..., None] + 0.1) - 1 / 3
    tint = _around(blurred(blurred(tints, _SQUARE), 1), rows, columns, np.array([-_SQUARE, _SQUARE]))
    whole = np.round(_STEPS * np.concatenate([_of_length_1(edges), _TINT * tint], axis=1))
    return whole.astype(np.float32)


def _edges(brightness: Float64[np.ndarray, "height width"]) -> Float64[np.ndarray, "height width directions"]:
    """How strongly brightness changes at each pixel, along the two directions nearest to that of the change."""
    down, right = np.gradient(brightness)
    direction = np.arctan2(down, right) * (_DIRECTIONS / (2 * np.pi))
    strength, below = np.hypot(right, down), np.floor(direction).astype(int) & (_DIRECTIONS - 1)
    found = np.zeros((*brightness.shape, _DIRECTIONS))
    row, column = np.arange(brightness.shape[0])[:, None], np.arange(brightness.shape[1])
    for nearest in (below, (below + 1) & (_DIRECTIONS - 1)):  # of all others it is a step or more away
        away = direction - nearest + _DIRECTIONS / 2
        away += _DIRECTIONS * (away < 0)  # once round at most, which takes far less time than a remainder
        found[row, column, nearest] = strength * np.maximum(0, 1 - np.abs(away - _DIRECTIONS / 2))
    return found


def _around(
    maps: Float64[np.ndarray, "height width channels"],
    rows: Int64[np.ndarray, " corners"],
    columns: Int64[np.ndarray, " corners"],
    offsets: Float64[np.ndarray, " offsets"] | Int64[np.ndarray, " offsets"],
) -> Float64[np.ndarray, "corners numbers"]:
    """All channels at all pairs of offsets from each corner; nothing outside of the picture."""
    steps = np.round(offsets).astype(int)
    margin = int(np.abs(steps).max())
    height, width, channels = maps.shape
    padded = np.zeros((height + 2 * margin, width + 2 * margin, channels))
    padded[margin:-margin, margin:-margin] = maps
    squares = [padded[rows + margin + down, columns + margin + right] for down in steps for right in steps]
    return np.concatenate(squares, axis=1)


def _of_length_1(vectors: Float64[np.ndarray, "corners numbers"]) -> Float64[np.ndarray, "corners numbers"]:
    lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    return np.asarray(vectors / np.maximum(lengths, 1e-9))
