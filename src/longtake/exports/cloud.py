"""The cloud of a whole video, which grows frame by frame and stays bounded: a point a voxel, voxels as wide as needed.

What it is at the end depends on the frames alone, not on when it was asked for, put away or taken up again.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from longtake.errors import SettingError
from longtake.exports.frame import MappedFrame
from longtake.exports.point_filter import PointFilter
from longtake.exports.sink import SinkState
from longtake.spatial.normals import normals_from_depth
from longtake.spatial.voxels import LARGEST_ATTRIBUTE, REACH, VoxelContent, VoxelGrid

LARGEST_CONFIDENCE = 4096
"""Larger confidences count as this."""

_CONFIDENCE_UNIT = LARGEST_CONFIDENCE / LARGEST_ATTRIBUTE
_NUM_ATTRIBUTES = 7
_FRACTION_BITS = 20
"""A millionth of a voxel, so that a voxel can take points for years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """What a cloud is made of, and how large it may become."""

    points: PointFilter = field(default_factory=PointFilter)
    voxel: float | None = None
    """Edge of the finest voxel; None for the width of a pixel at the median depth of the first frame with points."""
    max_points: int = 2_000_000
    """Voxels become twice as wide, again and again, until there are no more than this."""

    def __post_init__(self) -> None:
        if self.voxel is not None and not (self.voxel > 0 and math.isfinite(self.voxel)):
            raise SettingError(f"The edge of a voxel must be a positive length, but is {self.voxel}.")
        if self.max_points < 1:
            raise SettingError(f"Expected a cloud of 1 point or more, not of {self.max_points}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """Points in the world, ordered by their voxels."""

    points: Float[np.ndarray, "points 3"]
    normals: Float[np.ndarray, "points 3"]
    """Of length 1, or zero where unknown."""
    colours: UInt8[np.ndarray, "points 3"]
    confidence: Float[np.ndarray, " points"]
    voxel: float | None
    """Edge of a voxel; None where there are no points."""


@dataclass(frozen=True, slots=True)
class _InVoxels:
    """The points of a frame, summed by voxel."""

    content: VoxelContent
    num_out_of_reach: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePoints:
    """What a frame adds to a cloud: by voxel, or as points where the width of voxels is not known yet."""

    lacks_mask: bool
    in_voxels: _InVoxels | None = None
    pixel: float | None = None
    """The width of a pixel at the median depth."""
    points: Float[Tensor, "points 3"] | None = None
    attributes: Float[Tensor, "points 7"] | None = None


class GrowingCloud:
    """Takes frames, gives the cloud at any time."""

    def __init__(self, settings: CloudSettings, *, state: SinkState | None = None) -> None:
        self._settings = settings
        self.num_frames = 0
        """Frames that gave points."""
        self.num_without_mask = 0
        """Frames that were taken whole because the folder of masks has none for them."""
        self.num_out_of_reach = 0
        """Points too far from the origin for voxels of the finest size, left out."""
        self._finest = settings.voxel
        self._grid: VoxelGrid | None = None
        if state is not None:
            self._restore(state)

    def add(self, frame: MappedFrame) -> None:
        """Take the next frame."""
        self.add_points(self.points_of(frame))

    def points_of(self, frame: MappedFrame) -> FramePoints | None:
        """The points of a frame, None where it gives none; needs no other frame, so that several threads may do it."""
        if not self._settings.points.takes(frame):
            return None
        kept, lacks_mask = self._settings.points.kept(frame), self._settings.points.lacks_mask(frame)
        if not kept.any():
            return FramePoints(lacks_mask=lacks_mask)
        points, attributes = _points_of(frame, kept)
        if self._grid is not None:
            return FramePoints(lacks_mask=lacks_mask, in_voxels=_within_reach(self._grid, points, attributes))
        pixel = float(np.median(frame.depth[kept].astype(np.float64)) / frame.intrinsics[0, 0])
        return FramePoints(lacks_mask=lacks_mask, pixel=pixel, points=points, attributes=attributes)

    def add_points(self, found: FramePoints | None) -> None:
        """Take the points of the next frame."""
        if found is None:
            return
        self.num_without_mask += found.lacks_mask
        in_voxels = found.in_voxels
        if in_voxels is None and found.points is None:
            return
        self.num_frames += 1
        if self._grid is None:
            assert found.pixel is not None
            self._finest = found.pixel if self._finest is None else self._finest
            self._grid = _new_grid(self._finest)
        if in_voxels is None:
            assert found.points is not None
            assert found.attributes is not None
            in_voxels = _within_reach(self._grid, found.points, found.attributes)
        self.num_out_of_reach += in_voxels.num_out_of_reach
        self._grid.merge(in_voxels.content)
        self._bound(self._grid)

    def cloud(self) -> Cloud:
        """All points so far."""
        if self._grid is None:
            return _cloud_of(_new_grid(1.0), voxel=None)
        return _cloud_of(self._grid, voxel=self._grid.voxel)

    def state(self) -> SinkState:
        """What a cloud needs to go on from here."""
        counts = {
            "num_frames": self.num_frames,
            "num_without_mask": self.num_without_mask,
            "num_out_of_reach": self.num_out_of_reach,
        }
        if self._grid is None:
            return SinkState(values={**counts, "finest_voxel": None, "doublings": 0})
        content = self._grid.content
        return SinkState(
            values={**counts, "finest_voxel": self._finest, "doublings": content.doublings},
            arrays={"keys": content.keys, "sums": content.sums},
        )

    def _restore(self, state: SinkState) -> None:
        self.num_frames = state.values["num_frames"]
        self.num_without_mask = state.values["num_without_mask"]
        self.num_out_of_reach = state.values["num_out_of_reach"]
        if state.values["finest_voxel"] is None:
            return
        self._finest = float(state.values["finest_voxel"])
        content = VoxelContent(
            keys=state.arrays["keys"], sums=state.arrays["sums"], doublings=state.values["doublings"]
        )
        self._grid = _new_grid(self._finest, content)

    def _bound(self, grid: VoxelGrid) -> None:
        while len(grid) > self._settings.max_points:
            grid.coarsen()


def _new_grid(finest: float, content: VoxelContent | None = None) -> VoxelGrid:
    return VoxelGrid(finest, num_attributes=_NUM_ATTRIBUTES, fraction_bits=_FRACTION_BITS, content=content)


def _within_reach(
    grid: VoxelGrid, points: Float[Tensor, "points 3"], attributes: Float[Tensor, "points 7"]
) -> _InVoxels:
    if bool(points.abs().amax() / grid.finest < REACH):
        return _InVoxels(grid.summed(points, attributes), 0)
    near = (points.abs() / grid.finest < REACH).all(dim=-1)
    return _InVoxels(grid.summed(points[near], attributes[near]), int((~near).sum()))


def _points_of(
    frame: MappedFrame, kept: Bool[np.ndarray, "height width"]
) -> tuple[Float[Tensor, "points 3"], Float[Tensor, "points 7"]]:
    """Points of some pixels in the world; their normals, colours and confidences."""
    depth, chosen = torch.from_numpy(frame.depth).double(), np.flatnonzero(kept)
    place = torch.from_numpy(chosen)
    normals = normals_from_depth(depth, frame.intrinsics, frame.world_from_camera).movedim(-1, 0).flatten(1)
    confidence = torch.from_numpy(frame.confidence.ravel()[chosen]).double() / _CONFIDENCE_UNIT
    attributes = torch.empty(_NUM_ATTRIBUTES, len(chosen), dtype=torch.float64)
    attributes[:3] = normals.index_select(1, place)
    for channel in range(3):
        attributes[3 + channel] = torch.from_numpy(frame.image[..., channel].ravel()[chosen])
    attributes[6] = confidence.clamp(-LARGEST_ATTRIBUTE, LARGEST_ATTRIBUTE)
    return _unprojected(depth, place, frame), attributes.T


def _unprojected(
    depth: Float[Tensor, "height width"], place: Int[Tensor, " points"], frame: MappedFrame
) -> Float[Tensor, "points 3"]:
    """As `unproject`, to the bit, of the pixels at these places alone."""
    (focal_x, _, center_x), (_, focal_y, center_y), _ = frame.intrinsics.tolist()
    height, width = depth.shape
    row, column = torch.arange(height, dtype=depth.dtype)[:, None], torch.arange(width, dtype=depth.dtype)
    pictures = (column - center_x) / focal_x * depth, (row - center_y) / focal_y * depth, depth
    camera_points = torch.stack([picture.flatten().index_select(0, place) for picture in pictures])
    rotation, translation = frame.world_from_camera[:3, :3], frame.world_from_camera[:3, 3:]
    return (torch.einsum("ij,jn->in", rotation, camera_points) + translation).T


def _cloud_of(grid: VoxelGrid, *, voxel: float | None) -> Cloud:
    size = len(grid)
    points, normals, confidence = np.empty((size, 3)), np.empty((size, 3)), np.empty(size)
    colours, start = np.empty((size, 3), dtype=np.uint8), 0
    for some_points, attributes in grid.pieces():
        part = slice(start, start := start + len(some_points))
        points[part] = some_points
        normals[part] = torch.nn.functional.normalize(attributes[:, :3], dim=1)
        colours[part] = attributes[:, 3:6].round()
        confidence[part] = attributes[:, 6] * _CONFIDENCE_UNIT
    return Cloud(points=points, normals=normals, colours=colours, confidence=confidence, voxel=voxel)
