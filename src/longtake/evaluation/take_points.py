"""The surfaces a take has seen against those of another: clouds from depth and poses, laid onto each other.

Clouds are bounded: of at most 100 matched frames, evenly spaced, at most 10,000 pixels each, evenly spaced too; then
one point for each voxel of half the threshold.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from longtake.evaluation.alignment_mode import AlignmentMode, truth_from_result
from longtake.evaluation.matched import Matched
from longtake.evaluation.points import Cloud, PointErrors, measure_points
from longtake.evaluation.registration import Icp, Registration, in_double, register
from longtake.evaluation.settings import EvalSettings
from longtake.evaluation.spacing import evenly_spaced
from longtake.evaluation.steps import BeginSteps, stepping, uncounted
from longtake.spatial.normals import normals_from_depth
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


def measure_take_points(matched: Matched, settings: EvalSettings, begin: BeginSteps = uncounted) -> TakePoints:
    """Errors of the cloud of one take with depth against that of another.

    The result is moved as `align` lets its cameras move, then turned and shifted by ICP, unless nothing may be moved.
    `begin` is told of each frame that is read.
    """
    result, truth = matched.result.take_with_depth(), matched.truth.take_with_depth()
    chosen = evenly_spaced(len(matched.frames), _MOST_FRAMES)
    voxel = settings.threshold / _VOXELS_PER_THRESHOLD
    still = in_double(Similarity.identity(torch.device("cpu")))
    moved = truth_from_result(matched.poses, settings.align)
    advance = begin(2 * len(chosen))
    predicted = cloud_of(result, stepping(matched.frames.result_index[chosen].tolist(), advance), moved, voxel)
    true = cloud_of(truth, stepping(matched.frames.truth_index[chosen].tolist(), advance), still, voxel)
    icp = Icp(alignment_mode=AlignmentMode.NONE if settings.align is AlignmentMode.NONE else AlignmentMode.SE3)
    some = predicted.points[:: math.ceil(len(predicted.points) / _MOST_REGISTERED) or 1]
    registration = register(some, true.points, still, icp)
    laid = predicted.moved(registration.target_from_source)
    return TakePoints(
        errors=measure_points(laid, true, threshold=settings.threshold),
        registration=registration,
        voxel=voxel,
        num_frames=len(chosen),
    )


def cloud_of(take: Take, positions: Iterable[int], moved: Similarity, voxel: float) -> Cloud:
    """What these frames show, in the world of the take once that is moved, with normals averaged as points are."""
    grid = VoxelGrid(voxel, num_attributes=3)
    for position in positions:
        surface = _surface(take, position, moved)
        assert surface.normals is not None
        grid.add(surface.points, surface.normals)
    return Cloud(grid.points, grid.attributes)


def _surface(take: Take, position: int, moved: Similarity) -> Cloud:
    """The points of some pixels and their normals, zero where unknown."""
    depth = moved.scale * torch.from_numpy(take.depth(position)).double()
    step = math.ceil(math.sqrt(depth.numel() / _MOST_PIXELS))
    first = (step - 1) // 2
    depth, intrinsics = depth[first::step, first::step], take.intrinsics[position].clone()
    intrinsics[:2, 2] -= first
    intrinsics[:2] /= step
    camera = moved.of_cameras(take.trajectory.world_from_camera[position])
    seen = depth > 0
    points, normals = unproject(depth, intrinsics, camera), normals_from_depth(depth, intrinsics, camera)
    return Cloud(points[seen], normals[seen])
