"""The cloud of a whole video, which grows frame by frame and stays bounded: a point a voxel, voxels as wide as needed.

What it is at the end depends on the frames alone, not on when it was asked for, put away or taken up again.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from longtake.errors import SettingError
from longtake.export.frame import MappedFrame
from longtake.export.point_filter import PointFilter
from longtake.export.sink import SinkState
from longtake.spatial.normals import normals_from_depth
from longtake.spatial.pinhole import unproject
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
        if not self._settings.points.takes(frame):
            return
        kept = self._settings.points.kept(frame)
        self.num_without_mask += self._settings.points.lacks_mask(frame)
        if not kept.any():
            return
        self.num_frames += 1
        if self._finest is None:
            self._finest = float(np.median(frame.depth[kept].astype(np.float64)) / frame.intrinsics[0, 0])
        if self._grid is None:
            self._grid = _new_grid(self._finest)
        self._add_within_reach(self._grid, self._finest, *_points_of(frame, kept))
        if self._grid.most_voxels > 2 * self._settings.max_points:
            self._bound(self._grid)

    def cloud(self) -> Cloud:
        """All points so far."""
        if self._grid is None:
            return _cloud_of(_new_grid(1.0), voxel=None)
        self._bound(self._grid)
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
        self._bound(self._grid)
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

    def _add_within_reach(
        self, grid: VoxelGrid, finest: float, points: Float[Tensor, "points 3"], attributes: Float[Tensor, "points 7"]
    ) -> None:
        near = (points.abs() / finest < REACH).all(dim=-1)
        self.num_out_of_reach += int((~near).sum())
        grid.add(points[near], attributes[near])

    def _bound(self, grid: VoxelGrid) -> None:
        while len(grid) > self._settings.max_points:
            grid.coarsen()


def _new_grid(finest: float, content: VoxelContent | None = None) -> VoxelGrid:
    return VoxelGrid(finest, num_attributes=_NUM_ATTRIBUTES, fraction_bits=_FRACTION_BITS, content=content)


def _points_of(
    frame: MappedFrame, kept: Bool[np.ndarray, "height width"]
) -> tuple[Float[Tensor, "points 3"], Float[Tensor, "points 7"]]:
    """Points of some pixels in the world; their normals, colours and confidences."""
    depth, chosen = torch.from_numpy(frame.depth).double(), torch.from_numpy(kept)
    points = unproject(depth, frame.intrinsics, frame.world_from_camera)[chosen]
    normals = normals_from_depth(depth, frame.intrinsics, frame.world_from_camera)[chosen]
    colours = torch.from_numpy(frame.image[kept]).double()
    confidence = torch.from_numpy(frame.confidence[kept]).double() / _CONFIDENCE_UNIT
    limited = confidence.clamp(-LARGEST_ATTRIBUTE, LARGEST_ATTRIBUTE)[:, None]
    return points, torch.cat([normals, colours, limited], dim=1)


def _cloud_of(grid: VoxelGrid, *, voxel: float | None) -> Cloud:
    attributes = grid.attributes
    return Cloud(
        points=grid.points.numpy(),
        normals=torch.nn.functional.normalize(attributes[:, :3], dim=1).numpy(),
        colours=attributes[:, 3:6].round().to(torch.uint8).numpy(),
        confidence=(attributes[:, 6] * _CONFIDENCE_UNIT).numpy(),
        voxel=voxel,
    )
