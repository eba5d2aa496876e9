"""The surfaces a take has seen against those of another: clouds from depth and poses, laid onto each other.

Clouds are bounded: of at most 100 matched frames, evenly spaced, at most 10,000 pixels each, evenly spaced too; then
one point for each voxel of half the threshold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from longtake.evaluate.freedom import Freedom, truth_from_result
from longtake.evaluate.matched import Matched
from longtake.evaluate.normals import normals_from_depth
from longtake.evaluate.points import Cloud, PointErrors, measure_points
from longtake.evaluate.registration import Icp, Registration, in_double, register
from longtake.evaluate.settings import EvalSettings
from longtake.spatial.pinhole import unproject
from longtake.spatial.similarity import Similarity
from longtake.spatial.voxels import VoxelGrid
from longtake.takes.take import Take

_MOST_FRAMES = 100
_MOST_PIXELS = 10_000
_MOST_REGISTERED = 20_000
_VOXELS_PER_THRESHOLD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TakePoints:
    """Errors of two clouds, and how they were made and brought together."""

    errors: PointErrors
    registration: Registration
    """From where the cameras had put the result's cloud."""
    voxel: float
    num_frames: int


def measure_take_points(matched: Matched, settings: EvalSettings) -> TakePoints:
    """Errors of the cloud of one take with depth against that of another.

    The result is moved as `align` lets its cameras move, then turned and shifted by ICP, unless nothing may be moved.
    """
    result, truth = matched.result.take_with_depth(), matched.truth.take_with_depth()
    chosen = _evenly_spaced(len(matched.frames), _MOST_FRAMES)
    voxel = settings.threshold / _VOXELS_PER_THRESHOLD
    still = in_double(Similarity.identity(torch.device("cpu")))
    moved = truth_from_result(matched.poses, settings.align)
    predicted = cloud_of(result, matched.frames.result_index[chosen].tolist(), moved, voxel)
    true = cloud_of(truth, matched.frames.truth_index[chosen].tolist(), still, voxel)
    icp = Icp(freedom=Freedom.NONE if settings.align is Freedom.NONE else Freedom.SE3)
    some = predicted.points[:: math.ceil(len(predicted.points) / _MOST_REGISTERED) or 1]
    registration = register(some, true.points, still, icp)
    laid = predicted.moved(registration.target_from_source)
    return TakePoints(
        errors=measure_points(laid, true, threshold=settings.threshold),
        registration=registration,
        voxel=voxel,
        num_frames=len(chosen),
    )


def cloud_of(take: Take, positions: Sequence[int], moved: Similarity, voxel: float) -> Cloud:
    """What these frames show, in the world of the take once that is moved, with normals averaged as points are."""
    grid = VoxelGrid(voxel, num_attributes=3)
    for position in positions:
        surface = _surface(take, position, moved)
        assert surface.normals is not None
        grid.add(surface.points, surface.normals)
    return Cloud(grid.points, grid.attributes)


def _surface(take: Take, position: int, moved: Similarity) -> Cloud:
    depth = moved.scale * torch.from_numpy(take.depth(position)).double()
    camera, intrinsics = moved.of_cameras(take.trajectory.world_from_camera[position]), take.intrinsics[position]
    step = math.ceil(math.sqrt(depth.numel() / _MOST_PIXELS))
    start = step // 2
    grids = (depth[..., None], unproject(depth, intrinsics, camera), normals_from_depth(depth, intrinsics, camera))
    sampled, points, normals = (grid[start::step, start::step].flatten(0, 1) for grid in grids)
    seen = sampled.squeeze(-1) > 0
    return Cloud(points[seen], normals[seen])


def _evenly_spaced(count: int, most: int) -> Tensor:
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).round().long()
