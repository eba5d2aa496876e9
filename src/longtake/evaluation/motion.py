"""The path of a camera, its motion between two frames, and angles between cameras."""

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from longtake.spatial.pose import rigid_pose


def step_length(world_from_camera: Float64[Tensor, "frames 4 4"]) -> Float64[Tensor, " steps"]:
    """From each camera centre to the next."""
    steps: Tensor = world_from_camera[:, :3, 3].diff(dim=0).norm(dim=-1)
    return steps


def path_length(world_from_camera: Float64[Tensor, "frames 4 4"]) -> Float64[Tensor, " frames"]:
    """From the first camera centre to each, along those between; it starts with 0."""
    steps = step_length(world_from_camera)
    return torch.cat([steps.new_zeros(1), steps.cumsum(dim=0)])


def motion(
    world_from_camera: Float64[Tensor, "frames 4 4"], start: Int64[Tensor, " pairs"], end: Int64[Tensor, " pairs"]
) -> Float64[Tensor, "pairs 4 4"]:
    """`start_from_end`: each later camera as the earlier sees it, precise even far from the world's origin."""
    start_from_world = world_from_camera[start, :3, :3].transpose(1, 2)
    shift = world_from_camera[end, :3, 3:] - world_from_camera[start, :3, 3:]
    return rigid_pose(start_from_world @ world_from_camera[end, :3, :3], (start_from_world @ shift).squeeze(-1))


def rotation_error_deg(
    result: Float64[Tensor, "*batch 4 4"], truth: Float64[Tensor, "*batch 4 4"]
) -> Float64[Tensor, "*batch"]:
    """How far each camera, or motion, is turned away from the true one."""
    return rotation_angle_deg(truth[..., :3, :3].mT @ result[..., :3, :3])


def rotation_angle_deg(rotation: Float64[Tensor, "*batch 3 3"]) -> Float64[Tensor, "*batch"]:
    """How far each rotation turns; exact from 0 to 180, as it uses the sine and not only the cosine."""
    lower, upper = rotation[..., [2, 0, 1], [1, 2, 0]], rotation[..., [1, 2, 0], [2, 0, 1]]
    sine = (lower - upper).norm(dim=-1) / 2
    cosine = (rotation.diagonal(dim1=-2, dim2=-1).sum(dim=-1) - 1) / 2
    return torch.rad2deg(torch.atan2(sine, cosine))


def direction_angle_deg(a: Float64[Tensor, "*batch 3"], b: Float64[Tensor, "*batch 3"]) -> Float64[Tensor, "*batch"]:
    """The angle between two vectors of any length; 0 where one has none."""
    return torch.rad2deg(torch.atan2(torch.linalg.cross(a, b).norm(dim=-1), (a * b).sum(dim=-1)))
