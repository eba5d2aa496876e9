"""What viewers are sent of a frame: some of its points, before its own camera, ten bytes each.

byte  0       2       4       6     7     8     9            10
      ┌───────┬───────┬───────┬─────┬─────┬─────┬────────────┐
      │ x u16 │ y u16 │ z u16 │ red │green│blue │ confidence │      position = origin + (x, y, z) * scale
      └───────┴───────┴───────┴─────┴─────┴─────┴────────────┘

Rows are in a random order that depends on the frame's index alone, so that any first part of them is a fair sample.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped, UInt8

from longtake.exports.frame import MappedFrame
from longtake.exports.point_filter import PointFilter
from longtake.spatial.voxel_set import VoxelSet

ROW = np.dtype([("position", "<u2", 3), ("colour", "u1", 3), ("confidence", "u1")])
MOST_POINTS = 4096
"""Of one frame; those left out come with later frames that see the same place."""
_MOST_LOOKED_AT = 32_768
"""Pixels of a frame among which points are chosen, so that no frame takes long however large it is."""
_MOST_VOXELS = 500_000
_VOXELS_TO_DEPTH = 48
"""Voxels along the median depth of the first frame with points; twice as wide as a pixel of a small network there."""
_STEPS = 2**16 - 1
_NEAR_PERCENT = 1.0
_MOST_ERROR_PX = 0.5
_REACH = 0.4
"""So many times the near depth, steps a pixel, are resolved to half a pixel within the view of a usual camera."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointChunk:
    """Points of one frame in the coordinates of its camera."""

    frame: int
    time_s: float
    origin: tuple[float, float, float]
    scale: float
    rows: Shaped[np.ndarray, " points"]
    """Of the type `ROW`."""
    total: int
    """Points that were made of the frame, some of which may have been left out since."""

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, count: int) -> "PointChunk":
        """The first so many points; a copy, so that the rest need not be held."""
        return replace(self, rows=self.rows[:count].copy())

    @property
    def positions(self) -> Float[np.ndarray, "points 3"]:
        """As a viewer reads them."""
        return np.array(self.origin) + self.rows["position"] * self.scale


class PointMaker:
    """Makes chunks of frames, and leaves out points near those of frames before."""

    def __init__(self, points: PointFilter | None = None) -> None:
        self._filter = points or PointFilter()
        self._seen: VoxelSet | None = None

    def begin_anew(self) -> None:
        """Frames before were moved: what lies where they were is not known any more."""
        self._seen = None

    def chunk(self, frame: MappedFrame) -> PointChunk | None:
        """The points of a frame that show something new; None where there are none."""
        if not self._filter.takes(frame):
            return None
        places = _shuffled(self._filter.kept(frame), frame.index)
        points = camera_points(frame, places)
        is_resolved = _is_resolved(points, frame)
        places, points = places[is_resolved], points[is_resolved]
        if not len(points):
            return None
        if self._seen is None:
            self._seen = VoxelSet(float(np.median(points[:, 2])) / _VOXELS_TO_DEPTH, most=_MOST_VOXELS)
        pose = frame.world_from_camera.numpy()
        world = points @ pose[:3, :3].T + pose[:3, 3]
        new = self._seen.firsts(world)[:MOST_POINTS]
        if not len(new):
            return None
        self._seen.add(world[new])
        return _packed(frame, places[new], points[new])


def camera_points(frame: MappedFrame, places: Int[np.ndarray, " points"]) -> Float[np.ndarray, "points 3"]:
    """Pixels at places in the flattened picture, as points before the camera; in double precision."""
    (focal_x, _, center_x), (_, focal_y, center_y), _ = frame.intrinsics.tolist()
    row, column = np.divmod(places, frame.depth.shape[1])
    depth = frame.depth.ravel()[places].astype(np.float64)
    return np.stack([(column - center_x) / focal_x * depth, (row - center_y) / focal_y * depth, depth], axis=1)


def confidence_bytes(confidence: Float[np.ndarray, "*pixels"]) -> UInt8[np.ndarray, "*pixels"]:
    """0 for the network's least, 1, up to 255 for what it is sure of: the same measure in all frames."""
    share = 1 - 1 / np.maximum(np.nan_to_num(confidence, nan=1.0), 1.0)
    shares: UInt8[np.ndarray, "*pixels"] = np.rint(share * 255).astype(np.uint8)
    return shares


def _shuffled(kept: Bool[np.ndarray, "height width"], seed: int) -> Int[np.ndarray, " points"]:
    places = np.flatnonzero(kept)
    return np.random.default_rng(seed).permutation(places)[:_MOST_LOOKED_AT]


def _is_resolved(points: Float[np.ndarray, "points 3"], frame: MappedFrame) -> Bool[np.ndarray, " points"]:
    """Whether a point is near enough for 16 bits to tell those right before the camera apart too."""
    if not len(points):
        return np.zeros(0, dtype=bool)
    near = float(np.percentile(points[:, 2], _NEAR_PERCENT))
    focal = max(float(frame.intrinsics[0, 0]), float(frame.intrinsics[1, 1]))
    resolved: Bool[np.ndarray, " points"] = points[:, 2] <= max(near, near / focal * _STEPS * _REACH)
    return resolved


def _packed(
    frame: MappedFrame, places: Int[np.ndarray, " points"], points: Float[np.ndarray, "points 3"]
) -> PointChunk | None:
    """Positions in whole steps; points that these would move by more than half a pixel are left out."""
    origin = points.min(axis=0)
    scale = float((points.max(axis=0) - origin).max() or 1.0) / _STEPS
    steps = np.rint((points - origin) / scale)
    stays = _error_px(points, origin + steps * scale, frame) < _MOST_ERROR_PX
    rows = np.empty(int(stays.sum()), dtype=ROW)
    rows["position"] = steps[stays]
    rows["colour"] = frame.image.reshape(-1, 3)[places[stays]]
    rows["confidence"] = confidence_bytes(frame.confidence.ravel()[places[stays]])
    if not len(rows):
        return None
    return PointChunk(
        frame=frame.index,
        time_s=frame.timestamp_s,
        origin=(float(origin[0]), float(origin[1]), float(origin[2])),
        scale=scale,
        rows=rows,
        total=len(rows),
    )


def _error_px(
    points: Float[np.ndarray, "points 3"], moved: Float[np.ndarray, "points 3"], frame: MappedFrame
) -> Float[np.ndarray, " points"]:
    """How far points move in the picture, along the axis on which they move most."""
    focal = np.array([float(frame.intrinsics[0, 0]), float(frame.intrinsics[1, 1])])
    before, after = points[:, :2] / points[:, 2:], moved[:, :2] / np.maximum(moved[:, 2:], 1e-12)
    error: Float[np.ndarray, " points"] = np.abs((after - before) * focal).max(axis=1)
    return error
