"""The way a camera has gone, and its motion between two frames."""

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
