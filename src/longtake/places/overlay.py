"""What lies on the glass: logos, time codes, black bars, which stay the same while all else moves.

A pixel counts up with every picture in which the scene has moved and it has not, and down where it changed. One that
came far enough is an overlay if an edge is near that stays as well, as letters have, or if all of a dark border does:
a plain wall or sky stays the same too, and is neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, UInt8

from longtake.types import Geometry

_MOVED = 4.0
"""Mean change of a picture, of 255, from which on its scene has moved."""
_UNCHANGED = 8
"""Change of a pixel up to which it has not; an encoder may add as much."""
_ENOUGH = 60
_MOST = 90
_BACK = 6
"""How far a pixel that changed counts down."""
_EDGE = 40
"""Difference of brightness between neighbours that makes an edge."""
_NEAR = 3
"""Pixels from an edge that belong to the same overlay."""
_DARK = 24
"""Of a border."""

Cover: TypeAlias = Bool[np.ndarray, "rows columns"] | None
"""Pixels of overlays; None where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Overlay:
    """How long each pixel has stayed the same."""

    last: UInt8[np.ndarray, "3 height width"] | None = None
    stayed: UInt8[np.ndarray, "height width"] | None = None
    covered: Cover = None

    @property
    def num_bytes(self) -> int:
        return sum(part.nbytes for part in (self.last, self.stayed, self.covered) if part is not None)

    @staticmethod
    def most_bytes(size: tuple[int, int]) -> int:
        """Of pictures of this height and width, which are made smaller where they are large."""
        return 5 * size[0] * size[1]

    @property
    def share(self) -> float:
        """Of the picture."""
        return 0.0 if self.covered is None else float(self.covered.mean())

    def seeing(self, pixels: UInt8[np.ndarray, "3 height width"]) -> "Overlay":
        """After one more picture."""
        if self.last is None or self.stayed is None:
            return Overlay(last=pixels, stayed=np.zeros(pixels.shape[1:], dtype=np.uint8))
        change = (np.maximum(pixels, self.last) - np.minimum(pixels, self.last)).max(axis=0)
        if change.mean() < _MOVED:
            return self
        longer, less = np.minimum(self.stayed, _MOST - 1) + 1, np.maximum(self.stayed, _BACK) - _BACK
        stayed = np.where(change <= _UNCHANGED, longer, less)
        return Overlay(last=pixels, stayed=stayed, covered=_covered(stayed >= _ENOUGH, pixels))


def left_out(geometry: Geometry, covers: Sequence[Cover]) -> Geometry:
    """Without confidence where an overlay lies over a frame: neither places nor the map are made of such pixels."""
    if all(cover is None for cover in covers):
        return geometry
    confidence = geometry.depth_confidence
    height, width = confidence.shape[1:]
    masks = torch.from_numpy(np.stack([_as_large(cover, height, width) for cover in covers]))
    return replace(geometry, depth_confidence=confidence.masked_fill(masks.to(confidence.device), 0.0))


def _as_large(cover: Cover, height: int, width: int) -> Bool[np.ndarray, "height width"]:
    if cover is None:
        return np.zeros((height, width), dtype=bool)
    rows, columns = (np.arange(side) * of // side for side, of in zip((height, width), cover.shape, strict=True))
    return np.asarray(cover[rows][:, columns])


def _covered(
    stays: Bool[np.ndarray, "height width"], pixels: UInt8[np.ndarray, "3 height width"]
) -> Bool[np.ndarray, "height width"] | None:
    """None where nothing is, as in nearly every picture."""
    if not stays.any():
        return None
    grey = pixels.astype(np.int16).sum(axis=0) // 3
    covered = _border(stays & (grey <= _DARK))
    edge = np.zeros_like(stays)
    across = (np.abs(np.diff(grey, axis=1)) >= _EDGE) & stays[:, 1:] & stays[:, :-1]
    along = (np.abs(np.diff(grey, axis=0)) >= _EDGE) & stays[1:] & stays[:-1]
    edge[:, 1:] |= across
    edge[1:] |= along
    if edge.any():
        covered = covered | (stays & _widened(edge))
    return covered if covered.any() else None


def _border(dark: Bool[np.ndarray, "height width"]) -> Bool[np.ndarray, "height width"]:
    """Whole rows and columns from the outside on."""
    found = np.zeros_like(dark)
    for rows, shown in ((dark, found), (dark[::-1], found[::-1]), (dark.T, found.T), (dark.T[::-1], found.T[::-1])):
        num_whole = int(np.logical_and.accumulate(rows.all(axis=1)).sum())
        shown[:num_whole] = True
    return found


def _widened(edge: Bool[np.ndarray, "height width"]) -> Bool[np.ndarray, "height width"]:
    height, width = edge.shape
    padded = np.pad(edge, _NEAR)
    shifts = [(row, column) for row in range(2 * _NEAR + 1) for column in range(2 * _NEAR + 1)]
    near = [padded[row : row + height, column : column + width] for row, column in shifts]
    return np.asarray(np.logical_or.reduce(near))
