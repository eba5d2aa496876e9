"""What a network is asked to say of a clip, and how far off it is.

Everything is measured in the first camera's frame, in units of the mean depth of the scale frames: no clip has a scale
of its own, and the network is never asked to know metres.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from longtake.spatial.pose import encode_pose, invert_rigid, matrix_from_quaternion
from training.footage import Clips

_ITERATION_DECAY = 0.6
_PLACE_BETA, _STEP_BETA = 0.02, 0.005
"""Below these the loss is quadratic."""
_CONFIDENCE_SHARE = 0.1
_OF_SKY = 1.0
"""How far off, in logarithms, every depth of sky is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The truth in the units of the network."""

    pose: Float[Tensor, "clips frames 9"]
    depth: Float[Tensor, "clips frames height width"]
    """Infinite where there is nothing but sky."""
    is_known: Bool[Tensor, "clips frames"]
    """Whether a frame's pose can be told from the first ones."""


def targets(clips: Clips, num_scale_frames: int) -> Targets:
    """Seen from the first camera, in units of the mean depth of the scale frames."""
    near = clips.depth[:, :num_scale_frames]
    is_there = near.isfinite()
    scale = torch.where(is_there, near, 0).sum(dim=(1, 2, 3)) / is_there.sum(dim=(1, 2, 3)).clamp_min(1)
    scale = torch.where(scale > 0, scale, 1)  # where they show nothing but sky, any will do
    relative = invert_rigid(clips.world_from_camera[:, :1]) @ clips.world_from_camera
    relative[..., :3, 3] /= scale[:, None, None]
    return Targets(
        pose=encode_pose(relative, clips.intrinsics, *clips.depth.shape[-2:]),
        depth=clips.depth / scale[:, None, None, None],
        is_known=clips.is_known,
    )


PARTS = ("place", "turn", "step", "lens", "depth", "edge", "depth_error")
"""Of a loss. A step is place and turn between frames; depth counts as much as the network is sure of it, which it pays
for; the last is the mean error of depth over depth, to look at."""
_WEIGHTS = (5.0, 5.0, 10.0, 1.0, 1.0, 1.0, 0.0)


def weighted(parts: Float[Tensor, " parts"]) -> Float[Tensor, ""]:
    """What is to be made small."""
    return torch.stack([weight * part for weight, part in zip(_WEIGHTS, parts, strict=True)]).sum()


def pose_losses(
    predicted: Float[Tensor, "iterations clips frames 9"],
    truth: Float[Tensor, "clips frames 9"],
    is_known: Bool[Tensor, "clips frames"],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
    """Place, turn and step of the frames whose pose can be known, lens of all; later iterations count more."""
    place = _away(predicted[..., :3], truth[..., :3], _PLACE_BETA, is_known)
    turn = _away(_upright(predicted[..., 3:7], truth[..., 3:7]), truth[..., 3:7], _PLACE_BETA, is_known)
    length = (predicted[..., 3:7].norm(dim=-1) - 1).abs().flatten(1).mean(dim=1)
    steps = _steps(predicted, truth, is_known)
    lens = (predicted[..., 7:] - truth[..., 7:]).abs().flatten(1).mean(dim=1)
    parts = torch.stack([place, turn + 0.05 * length, steps, lens])
    weights = _ITERATION_DECAY ** torch.arange(len(predicted) - 1, -1, -1, device=predicted.device)
    place, turn, step, lens = (parts @ weights / weights.sum()).unbind()
    return place, turn, step, lens


def _away(
    predicted: Float[Tensor, "iterations clips frames *rest"],
    truth: Float[Tensor, "clips frames *rest"],
    beta: float,
    counts: Bool[Tensor, "clips frames"],
) -> Float[Tensor, " iterations"]:
    """Of each iteration, over the frames that count; below beta it is quadratic."""
    each = functional.smooth_l1_loss(predicted, truth.expand_as(predicted), beta=beta, reduction="none")
    of_frames = each.flatten(3).mean(dim=3) * counts
    return of_frames.flatten(1).sum(dim=1) / counts.sum().clamp_min(1)


def _upright(
    predicted: Float[Tensor, "iterations *batch 4"], truth: Float[Tensor, "*batch 4"]
) -> Float[Tensor, "iterations *batch 4"]:
    """Of unit length, and of the two quaternions of a turn the one on the truth's side."""
    unit = functional.normalize(predicted, dim=-1, eps=1e-6)
    same_side = (unit.detach() * truth).sum(dim=-1, keepdim=True) >= 0
    return torch.where(same_side, unit, -unit)


def _steps(
    predicted: Float[Tensor, "iterations clips frames 9"],
    truth: Float[Tensor, "clips frames 9"],
    is_known: Bool[Tensor, "clips frames"],
) -> Float[Tensor, " iterations"]:
    """How frames 1, 4 and a third of the clip apart lie to each other, seen from the earlier one."""
    num_frames = predicted.shape[2]
    turns = [matrix_from_quaternion(pose[..., 3:7]) for pose in (predicted, truth)]
    places = [pose[..., :3] for pose in (predicted, truth)]
    losses = []
    for gap in sorted({gap for gap in (1, 4, num_frames // 3) if 1 <= gap < num_frames}):
        said, true = (_between(turn, place, gap) for turn, place in zip(turns, places, strict=True))
        beta, both = _STEP_BETA if gap == 1 else _PLACE_BETA, is_known[:, gap:] & is_known[:, :-gap]
        losses.append(_away(said.moved, true.moved, beta, both) + 0.5 * _away(said.turned, true.turned, beta, both))
    return torch.stack(losses).mean(dim=0)


@dataclass(frozen=True, slots=True)
class _Between:
    """From one camera to a later one."""

    moved: Float[Tensor, "*batch pairs 3"]
    turned: Float[Tensor, "*batch pairs 3 3"]


def _between(turn: Float[Tensor, "*batch frames 3 3"], place: Float[Tensor, "*batch frames 3"], gap: int) -> _Between:
    back = turn[..., :-gap, :, :].transpose(-1, -2)
    moved = back @ (place[..., gap:, :] - place[..., :-gap, :]).unsqueeze(-1)
    return _Between(moved.squeeze(-1), back @ turn[..., gap:, :, :])


def depth_losses(
    predicted: Float[Tensor, "clips frames height width"],
    confidence: Float[Tensor, "clips frames height width"],
    truth: Float[Tensor, "clips frames height width"],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
    """Depth, edges, and the mean error of depth over depth; of sky any depth is as wrong, so no confidence pays."""
    is_there = truth.isfinite()
    true = torch.where(is_there, truth, 1)
    away = torch.where(is_there, predicted.log() - true.log(), 0)
    depth = (confidence * torch.where(is_there, away.abs(), _OF_SKY) - _CONFIDENCE_SHARE * confidence.log()).mean()
    edge = sum(_between_neighbours(away, is_there, dim) for dim in (-1, -2))
    error = (torch.where(is_there, (predicted - true).abs() / true, 0)).sum() / is_there.sum().clamp_min(1)
    assert isinstance(edge, Tensor)
    return depth, edge, error.detach()


def _between_neighbours(
    away: Float[Tensor, "clips frames height width"], is_there: Bool[Tensor, "clips frames height width"], dim: int
) -> Float[Tensor, ""]:
    size = away.shape[dim]
    both = is_there.narrow(dim, 1, size - 1) & is_there.narrow(dim, 0, size - 1)
    return (away.diff(dim=dim).abs() * both).mean()
