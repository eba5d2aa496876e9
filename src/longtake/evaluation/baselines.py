"""Cameras and depth guessed without looking at the pictures; a model must do better."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from longtake.evaluation.absolute import absolute_error
from longtake.evaluation.agreement import ClipGeometry
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.scoring import depth_errors, paired
from longtake.spatial.pose import invert_rigid


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineScore:
    """Errors of the baselines, aligned and divided as a run's are unless their names say otherwise."""

    velocity_ate_share: float | None
    straight_ate_share: float | None
    still_ate_share: float | None
    """Of a camera in the mean of the true centres, which is where the alignment puts one that stands still."""
    still_ate_m: float
    """The same in metres, of which a share of a long winding path hides most."""
    unaligned_velocity_ate_share: float | None
    """Where dead reckoning ends up: in the true world and unit from the first two cameras on, and not moved after."""
    unaligned_straight_ate_share: float | None
    mean_depth_abs_rel: float


def constant_velocity(truth: Float64[Tensor, "frames 4 4"]) -> Float64[Tensor, "frames 4 4"]:
    """The first two true cameras, then the motion from one to the other again and again, its turn included.

    camera n = camera 0 · (camera 0⁻¹ · camera 1)ⁿ: where the camera turned between the two, its way is a circle or a
    screw, else a straight line.
    """
    step = invert_rigid(truth[0]) @ truth[1]
    cameras = [truth[0], truth[1]]
    while len(cameras) < len(truth):
        cameras.append(cameras[-1] @ step)
    return torch.stack(cameras[: len(truth)])


def straight_line(truth: Float64[Tensor, "frames 4 4"]) -> Float64[Tensor, "frames 4 4"]:
    """The first true camera, shifted for each frame by what lies between the first two; it never turns.

    Any straight way at a constant pace is the same after Sim(3) alignment, and so the best of them.
    """
    cameras = truth[:1].repeat(len(truth), 1, 1)
    count = torch.arange(len(truth), dtype=truth.dtype)
    cameras[:, :3, 3] += count[:, None] * (truth[1, :3, 3] - truth[0, :3, 3])
    return cameras


def one_depth(true: Float[Tensor, "frames height width"]) -> Float[Tensor, "frames height width"]:
    """The same depth for every pixel of every frame.

    Whichever it is, the mean of all houses or of the first frames, the one scale that a run is given makes it the
    median true depth of the walk.
    """
    return torch.ones_like(true)


def score_baselines(truth: ClipGeometry) -> BaselineScore:
    cameras = truth.world_from_camera
    velocity, straight = (paired(ahead(cameras), cameras) for ahead in (constant_velocity, straight_line))
    still = absolute_error(paired(cameras[:1].expand_as(cameras), cameras))
    return BaselineScore(
        velocity_ate_share=absolute_error(velocity).share_of_path,
        straight_ate_share=absolute_error(straight).share_of_path,
        still_ate_share=still.share_of_path,
        still_ate_m=still.translation.rmse,
        unaligned_velocity_ate_share=absolute_error(velocity, alignment_mode=AlignmentMode.NONE).share_of_path,
        unaligned_straight_ate_share=absolute_error(straight, alignment_mode=AlignmentMode.NONE).share_of_path,
        mean_depth_abs_rel=depth_errors(one_depth(truth.depth), truth.depth).abs_rel,
    )
