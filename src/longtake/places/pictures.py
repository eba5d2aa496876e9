"""Pictures of two views as they are compared: in numpy, small, and with the same bits on any number of threads.

Libraries share large products and sums among threads, and where they cut decides how they are rounded; what is used
here is computed by one thread in one order.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Shaped

from longtake.places.key_view import KeyView

LONGEST_SIDE = 168
"""In pixels, that of the widest pictures micro-map is shown; larger ones are made smaller, so that a candidate takes no
longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthPicture:
    """Colours with depth; pixel (0, 0) names the centre of the first one."""

    colours: Float64[np.ndarray, "height width 3"]
    """From 0 to 1."""
    depth: Float64[np.ndarray, "height width"]
    """Over its median, so that the window's unit is of no account; 1 where there is none."""
    unit: float
    """That median."""
    usable: Bool[np.ndarray, "height width"]
    """Where there is depth."""
    focal: Float64[np.ndarray, "2"]
    centre: Float64[np.ndarray, "2"]
    """Focal lengths and principal point, x before y."""

    @classmethod
    def of(cls, view: KeyView) -> "DepthPicture":
        image = view.image.cpu().numpy()
        colours = image.transpose(1, 2, 0) / (255.0 if image.dtype == np.uint8 else 1.0)
        depth = view.depth.double().cpu().numpy()
        confidence, intrinsics = view.depth_confidence.double().cpu().numpy(), view.intrinsics.double().cpu().numpy()
        usable = np.isfinite(depth) & (depth > 0) & np.isfinite(confidence) & (confidence > 0)
        step = -(-max(depth.shape) // LONGEST_SIDE)
        middle = (step - 1) / 2
        nearest = slice(step // 2, None, step)
        usable, depth = _whole(usable, step)[nearest, nearest], _whole(depth, step)[nearest, nearest]
        unit = float(np.median(depth[usable])) if usable.any() else 1.0
        return cls(
            colours=np.nan_to_num(_averaged(colours.astype(np.float64), step)),
            depth=np.where(usable, depth, unit) / unit,
            unit=unit,
            usable=usable,
            focal=intrinsics[[0, 1], [0, 1]] / step,
            centre=(intrinsics[:2, 2] - middle) / step,
        )

    @property
    def size(self) -> tuple[int, int]:
        height, width = self.depth.shape
        return height, width

    def lifted(self, pixels: Float64[np.ndarray, "points 2"]) -> Float64[np.ndarray, "points 3"]:
        """Points before the camera at the depth between the four pixels around."""
        depth = sampled(self.depth[..., None], pixels)
        return np.concatenate([(pixels - self.centre) / self.focal * depth, depth], axis=1)

    def has_depth(self, pixels: Float64[np.ndarray, "points 2"]) -> Bool[np.ndarray, " points"]:
        """Whether the nearest pixel of each has depth."""
        column, row = pixels.round().astype(int).T
        return np.asarray(self.usable[row, column])

    def projected(self, points: Float64[np.ndarray, "*batch 3"]) -> Float64[np.ndarray, "*batch 2"]:
        """Pixels of points before the camera; of those behind it, none that means anything."""
        return np.asarray(points[..., :2] / np.maximum(points[..., 2:], 1e-9) * self.focal + self.centre)

    def holds(self, pixels: Float64[np.ndarray, "*batch 2"]) -> Bool[np.ndarray, "*batch"]:
        """Whether places lie on a pixel, which reaches half of its side beyond its centre."""
        height, width = self.size
        return np.asarray(((pixels >= -0.5) & (pixels < np.array([width, height]) - 0.5)).all(axis=-1))

    def grid(self, step: int) -> Float64[np.ndarray, "points 2"]:
        """Every so many pixels that have depth, each way."""
        row, column = np.nonzero(self.usable[::step, ::step])
        return np.stack([column, row], axis=1) * float(step)


def sampled(
    maps: Float64[np.ndarray, "height width channels"], pixels: Float64[np.ndarray, "points 2"]
) -> Float64[np.ndarray, "points channels"]:
    """Between the four pixels around each place; outside, at the border."""
    height, width = maps.shape[:2]
    column = np.clip(pixels[:, 0], 0, width - 1)
    row = np.clip(pixels[:, 1], 0, height - 1)
    left, top = np.minimum(column.astype(int), width - 2), np.minimum(row.astype(int), height - 2)
    right, down = (column - left)[:, None], (row - top)[:, None]
    above = (1 - right) * maps[top, left] + right * maps[top, left + 1]
    below = (1 - right) * maps[top + 1, left] + right * maps[top + 1, left + 1]
    return np.asarray((1 - down) * above + down * below)


def blurred(
    maps: Float64[np.ndarray, "height width channels"], radius: int
) -> Float64[np.ndarray, "height width channels"]:
    """The mean of a square around each pixel; the border goes on outside."""
    height, width, channels = maps.shape
    count = 2 * radius + 1
    padded = np.empty((height + 2 * radius, width + 2 * radius, channels))  # as numpy's pad, which takes longer
    padded[radius : radius + height, radius : radius + width] = maps
    padded[:radius, radius : radius + width], padded[radius + height :, radius : radius + width] = maps[0], maps[-1]
    padded[:, :radius] = padded[:, radius : radius + 1]
    padded[:, radius + width :] = padded[:, radius + width - 1 : radius + width]
    down = padded[:height] + padded[1 : height + 1]
    for row in range(2, count):
        down += padded[row : row + height]
    across = down[:, :width] + down[:, 1 : width + 1]
    for column in range(2, count):
        across += down[:, column : column + width]
    return np.asarray(across / count**2)


def _whole(maps: Shaped[np.ndarray, "..."], step: int) -> Shaped[np.ndarray, "..."]:
    """Without the last rows and columns that fill no square of this side."""
    height, width = maps.shape[:2]
    return maps[: height - height % step, : width - width % step]


def _averaged(colours: Float64[np.ndarray, "height width 3"], step: int) -> Float64[np.ndarray, "rows columns 3"]:
    whole = _whole(colours, step)
    height, width = whole.shape[:2]
    squares = whole.reshape(height // step, step, width // step, step, 3)
    return np.asarray(squares.mean(axis=(1, 3)))
