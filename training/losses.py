"""What a network is asked to say of a clip, and how far off it is.

Everything is measured in the first camera's frame, in units of the mean depth of the scale frames: no clip has a scale
of its own, and the network is never asked to know metres.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from longtake.spatial.pose import encode_pose, invert_rigid, matrix_from_quaternion
from training.footage import Clips

_ITERATION_DECAY = 0.6
_PLACE_BETA, _STEP_BETA = 0.02, 0.005
"""Below these the loss is quadratic."""
_CONFIDENCE_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The truth in the units of the network."""

    pose: Float[Tensor, "clips frames 9"]
    depth: Float[Tensor, "clips frames height width"]


def targets(clips: Clips, num_scale_frames: int) -> Targets:
    """Seen from the first camera, in units of the mean depth of the scale frames."""
    scale = clips.depth[:, :num_scale_frames].mean(dim=(1, 2, 3))
    relative = invert_rigid(clips.world_from_camera[:, :1]) @ clips.world_from_camera
    relative[..., :3, 3] /= scale[:, None, None]
    return Targets(
        pose=encode_pose(relative, clips.intrinsics, *clips.depth.shape[-2:]),
        depth=clips.depth / scale[:, None, None, None],
    )


PARTS = ("place", "turn", "step", "lens", "depth", "edge", "depth_error")
"""Of a loss. A step is place and turn between frames; depth counts as much as the network is sure of it, which it pays
for; the last is the mean error of depth over depth, to look at."""
_WEIGHTS = (5.0, 5.0, 10.0, 1.0, 1.0, 1.0, 0.0)


def weighted(parts: Float[Tensor, " parts"]) -> Float[Tensor, ""]:
    """What is to be made small."""
    return torch.stack([weight * part for weight, part in zip(_WEIGHTS, parts, strict=True)]).sum()


def pose_losses(
    predicted: Float[Tensor, "iterations clips frames 9"], truth: Float[Tensor, "clips frames 9"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
    """Place, turn, step and lens; later iterations count more."""
    place = _away(predicted[..., :3], truth[..., :3], _PLACE_BETA)
    turn = _away(_upright(predicted[..., 3:7], truth[..., 3:7]), truth[..., 3:7], _PLACE_BETA)
    length = (predicted[..., 3:7].norm(dim=-1) - 1).abs().flatten(1).mean(dim=1)
    steps = [_step(predicted, truth, gap) for gap in _gaps(predicted.shape[2])]
    lens = (predicted[..., 7:] - truth[..., 7:]).abs().flatten(1).mean(dim=1)
    parts = torch.stack([place, turn + 0.05 * length, torch.stack(steps).mean(dim=0), lens])
    weights = _ITERATION_DECAY ** torch.arange(len(predicted) - 1, -1, -1, device=predicted.device)
    place, turn, step, lens = (parts @ weights / weights.sum()).unbind()
    return place, turn, step, lens


def _away(
    predicted: Float[Tensor, "iterations *rest"], truth: Float[Tensor, "*rest"], beta: float
) -> Float[Tensor, " iterations"]:
    """Of each iteration; below beta it is quadratic."""
    each = functional.smooth_l1_loss(predicted, truth.expand_as(predicted), beta=beta, reduction="none")
    return each.flatten(1).mean(dim=1)


def _upright(
    predicted: Float[Tensor, "iterations *batch 4"], truth: Float[Tensor, "*batch 4"]
) -> Float[Tensor, "iterations *batch 4"]:
    """Of unit length, and of the two quaternions of a turn the one on the truth's side."""
    unit = functional.normalize(predicted, dim=-1, eps=1e-6)
    same_side = (unit.detach() * truth).sum(dim=-1, keepdim=True) >= 0
    return torch.where(same_side, unit, -unit)


def _gaps(num_frames: int) -> list[int]:
    return sorted({gap for gap in (1, 4, num_frames // 3) if 1 <= gap < num_frames})


def _step(
    predicted: Float[Tensor, "iterations clips frames 9"], truth: Float[Tensor, "clips frames 9"], gap: int
) -> Float[Tensor, " iterations"]:
    """How frames so far apart lie to each other, seen from the earlier one."""
    (moved, turned), (true_moved, true_turned) = (_between(pose, gap) for pose in (predicted, truth))
    beta = _STEP_BETA if gap == 1 else _PLACE_BETA
    return _away(moved, true_moved, beta) + 0.5 * _away(turned, true_turned, beta)


def _between(
    pose: Float[Tensor, "*batch frames 9"], gap: int
) -> tuple[Float[Tensor, "*batch pairs 3"], Float[Tensor, "*batch pairs 3 3"]]:
    rotation = matrix_from_quaternion(pose[..., 3:7])
    back = rotation[..., :-gap, :, :].transpose(-1, -2)
    moved = back @ (pose[..., gap:, :3] - pose[..., :-gap, :3]).unsqueeze(-1)
    return moved.squeeze(-1), back @ rotation[..., gap:, :, :]


def depth_losses(
    predicted: Float[Tensor, "clips frames height width"],
    confidence: Float[Tensor, "clips frames height width"],
    truth: Float[Tensor, "clips frames height width"],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
    """Depth, edges, and the mean error of depth over depth."""
    away = predicted.log() - truth.log()
    depth = (confidence * away.abs() - _CONFIDENCE_SHARE * confidence.log()).mean()
    edge = away.diff(dim=-1).abs().mean() + away.diff(dim=-2).abs().mean()
    error = ((predicted - truth).abs() / truth).mean()
    return depth, edge, error.detach()
