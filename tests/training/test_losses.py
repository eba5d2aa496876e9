"""The truth scores best, whatever its scale and place; and every part against a slow second version."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.spatial.pose import invert_rigid, matrix_from_quaternion, rigid_pose
from training import losses
from training.footage import Clips
from training.losses import PARTS, depth_losses, targets, weighted


def pose_losses(said: Tensor, truth: Tensor) -> tuple[Tensor, ...]:
    """Where all poses can be known."""
    return losses.pose_losses(said, truth, torch.ones(truth.shape[:2], dtype=torch.bool))


@pytest.fixture
def truth(wandering: Clips) -> Tensor:
    return targets(wandering, 4).pose


def nudged(truth: Tensor, size: float, seed: int = 0) -> Tensor:
    """Three iterations, each somewhere else around the truth."""
    return truth + size * torch.randn(3, *truth.shape, generator=torch.Generator().manual_seed(seed))


def test_targets_are_in_the_first_cameras_frame_and_in_mean_depths(wandering: Clips) -> None:
    got = targets(wandering, 3)
    for clip in range(2):
        unit = float(wandering.depth[clip, :3].mean())
        torch.testing.assert_close(got.depth[clip], wandering.depth[clip] / unit)
        for frame in range(10):
            first, pose = wandering.world_from_camera[clip, 0], wandering.world_from_camera[clip, frame]
            relative = torch.linalg.inv(first) @ pose
            torch.testing.assert_close(got.pose[clip, frame, :3], relative[:3, 3] / unit, atol=1e-5, rtol=1e-5)
            rotation = matrix_from_quaternion(got.pose[clip, frame, 3:7])
            torch.testing.assert_close(rotation, relative[:3, :3], atol=1e-5, rtol=1e-5)
    fov_rad = [2 * math.atan(size / 2 / 30) for size in (28, 42)]
    torch.testing.assert_close(got.pose[..., 7:], torch.tensor(fov_rad).expand(2, 10, 2))
    torch.testing.assert_close(got.pose[:, 0, :7], torch.tensor([0.0] * 6 + [1.0]).expand(2, 7), atol=1e-6, rtol=0)


def test_targets_leave_the_clips_alone(wandering: Clips) -> None:
    before = wandering.world_from_camera.clone(), wandering.depth.clone()
    targets(wandering, 4)
    assert torch.equal(wandering.world_from_camera, before[0])
    assert torch.equal(wandering.depth, before[1])


@settings(deadline=None, max_examples=25)
@given(
    factor=st.floats(0.2, 5.0),
    turn=st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3),
    shift=st.lists(st.floats(-5.0, 5.0), min_size=3, max_size=3),
)
def test_targets_do_not_know_how_large_a_house_is_or_where_it_stands(
    factor: float, turn: list[float], shift: list[float]
) -> None:
    clips = _wander()
    moved = rigid_pose(matrix_from_quaternion(torch.tensor([*turn, 1.0])), torch.tensor(shift))
    scaled = clips.world_from_camera.clone()
    scaled[..., :3, 3] *= factor
    elsewhere = replace(clips, world_from_camera=moved @ scaled, depth=factor * clips.depth)
    here, there = targets(clips, 4), targets(elsewhere, 4)
    torch.testing.assert_close(here.pose, there.pose, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(here.depth, there.depth)


def _wander() -> Clips:
    poses = torch.eye(4).repeat(1, 6, 1, 1)
    poses[0, :, 0, 3] = torch.arange(6) * 0.3
    poses[0, :, 2, 3] = torch.arange(6) ** 2 * 0.05
    poses[0, 3:, :3, :3] = matrix_from_quaternion(torch.tensor([0.1, 0.3, 0.0, 1.0]))
    depth = 1 + torch.rand(1, 6, 4, 5, generator=torch.Generator().manual_seed(1))
    intrinsics = torch.tensor([[4.0, 0.0, 2.5], [0.0, 4.0, 2.0], [0.0, 0.0, 1.0]]).expand(1, 6, 3, 3)
    return Clips(
        image=torch.zeros(1, 6, 3, 4, 5),
        depth=depth,
        world_from_camera=poses,
        intrinsics=intrinsics,
        is_known=torch.ones(1, 6, dtype=torch.bool),
    )


def test_the_truth_itself_costs_nothing(truth: Tensor) -> None:
    for part in pose_losses(truth.expand(3, -1, -1, -1), truth):
        assert float(part) < 1e-6


@pytest.mark.parametrize(("numbers", "part"), [(slice(0, 3), 0), (slice(3, 7), 1), (slice(7, 9), 3)])
def test_each_part_sees_its_own_numbers(numbers: slice, part: int, truth: Tensor) -> None:
    said = truth.repeat(1, 1, 1, 1)
    said[..., numbers] = nudged(truth, 0.2)[:1][..., numbers]
    losses = pose_losses(said, truth)
    alone = {0, 1, 3} - {part}
    assert float(losses[part]) > 0.01
    assert max(float(losses[other]) for other in alone) < 1e-6
    assert (float(losses[2]) > 0.01) == (part != 3)


def test_a_quaternion_and_its_opposite_are_the_same_turn(truth: Tensor) -> None:
    said = nudged(truth, 0.1)
    opposite = said.clone()
    opposite[:, :, ::2, 3:7] *= -1
    for one, other in zip(pose_losses(said, truth), pose_losses(opposite, truth), strict=True):
        torch.testing.assert_close(one, other)


def test_only_the_length_of_a_quaternion_costs_little(truth: Tensor) -> None:
    long = truth.clone()
    long[..., 3:7] *= 1.5
    place, turn, step, lens = pose_losses(long[None], truth)
    assert float(turn) == pytest.approx(0.05 * 0.5, abs=1e-5)
    assert max(map(float, (place, step, lens))) < 1e-6


def smooth(away: float, beta: float) -> float:
    return away * away / (2 * beta) if abs(away) < beta else abs(away) - beta / 2


def slow_step(said: Tensor, truth: Tensor, gap: int) -> float:
    """Of one clip: the later camera seen from the earlier one, as matrices."""
    beta, places, turns = (0.005 if gap == 1 else 0.02), [], []
    for frame in range(len(truth) - gap):
        both = []
        for pose in (said, truth):
            cameras = rigid_pose(matrix_from_quaternion(pose[:, 3:7]), pose[:, :3])
            both.append(invert_rigid(cameras[frame]) @ cameras[frame + gap])
        away = (both[0] - both[1]).tolist()
        places += [smooth(away[row][3], beta) for row in range(3)]
        turns += [smooth(away[row][column], beta) for row in range(3) for column in range(3)]
    return sum(places) / len(places) + 0.5 * sum(turns) / len(turns)


def test_steps_are_those_between_cameras_one_four_and_a_third_of_the_clip_apart(truth: Tensor) -> None:
    said = nudged(truth, 0.05)[0]
    _, _, step, _ = pose_losses(said[None], truth)
    slow = [slow_step(said[clip], truth[clip], gap) for clip in range(2) for gap in (1, 3, 4)]
    assert float(step) == pytest.approx(sum(slow) / len(slow), rel=1e-4)


def test_short_clips_have_the_steps_that_fit(truth: Tensor) -> None:
    _, _, step, _ = pose_losses(nudged(truth, 0.05)[:1, :, :2], truth[:, :2])
    said = nudged(truth, 0.05)[0, :, :2]
    assert float(step) == pytest.approx(sum(slow_step(said[c], truth[c, :2], 1) for c in range(2)) / 2, rel=1e-4)


def test_later_iterations_count_more(truth: Tensor) -> None:
    good, bad = truth, nudged(truth, 0.3)[0]
    late, early = pose_losses(torch.stack([good, good, bad]), truth), pose_losses(torch.stack([bad, good, good]), truth)
    alone = pose_losses(bad[None], truth)
    shares = [0.36, 0.6, 1.0]
    for last, first, whole in zip(late, early, alone, strict=True):
        assert float(last) == pytest.approx(float(whole) * shares[2] / sum(shares), rel=1e-3, abs=1e-6)
        assert float(first) == pytest.approx(float(whole) * shares[0] / sum(shares), rel=1e-3, abs=1e-6)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), size=st.floats(0.01, 0.5))
def test_depth_costs_least_at_the_truth(seed: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    truth = 0.5 + torch.rand(1, 2, 4, 5, generator=generator)
    confidence = 1 + torch.rand(1, 2, 4, 5, generator=generator)
    other = truth * (1 + size * torch.rand(1, 2, 4, 5, generator=generator))
    best, worse = depth_losses(truth, confidence, truth), depth_losses(other, confidence, truth)
    assert all(float(at_truth) < float(elsewhere) for at_truth, elsewhere in zip(best, worse, strict=True))
    assert float(best[1]) == 0
    assert float(best[2]) == 0


def test_depth_is_scored_pixel_by_pixel_as_written() -> None:
    said, truth = torch.tensor([[[[1.0, 2.0], [4.0, 1.0]]]]), torch.ones(1, 1, 2, 2)
    depth, edge, error = depth_losses(said, torch.full((1, 1, 2, 2), 2.0), truth)
    log2 = math.log(2)
    assert float(depth) == pytest.approx((2 * (0 + log2 + 2 * log2 + 0) - 4 * 0.1 * log2) / 4)
    assert float(edge) == pytest.approx((log2 + 2 * log2) / 2 + (2 * log2 + log2) / 2)
    assert float(error) == pytest.approx((0 + 1 + 3 + 0) / 4)


def test_being_sure_pays_where_depth_is_right_and_costs_where_it_is_wrong() -> None:
    truth = torch.ones(1, 1, 4, 4)
    sure, unsure = torch.full((1, 1, 4, 4), 5.0), torch.ones(1, 1, 4, 4)
    assert depth_losses(truth, sure, truth)[0] < depth_losses(truth, unsure, truth)[0]
    assert depth_losses(2 * truth, sure, truth)[0] > depth_losses(2 * truth, unsure, truth)[0]


def test_gradients_are_finite_where_all_is_right(wandering: Clips) -> None:
    truth = targets(wandering, 4)
    said, depth = truth.pose.repeat(2, 1, 1, 1).requires_grad_(), truth.depth.clone().requires_grad_()
    confidence = torch.ones_like(depth).requires_grad_()
    parts = torch.stack([*pose_losses(said, truth.pose), *depth_losses(depth, confidence, truth.depth)])
    weighted(parts).backward()
    for tensor in (said, depth, confidence):
        assert bool(tensor.grad.isfinite().all())


def test_a_step_against_the_gradient_makes_the_loss_smaller(truth: Tensor) -> None:
    said = nudged(truth, 0.2).requires_grad_()
    loss = torch.stack(pose_losses(said, truth)).sum()
    (gradient,) = torch.autograd.grad(loss, said)
    after = torch.stack(pose_losses(said.detach() - 0.1 * gradient, truth)).sum()
    assert float(after) < loss.item()


def test_the_mean_error_of_depth_is_only_looked_at() -> None:
    parts = torch.ones(len(PARTS))
    without = parts.clone()
    without[PARTS.index("depth_error")] = 100.0
    assert float(weighted(parts)) == float(weighted(without)) == 23.0


def test_frames_whose_pose_nobody_can_know_are_not_asked_for(truth: Tensor) -> None:
    is_known = torch.ones(truth.shape[:2], dtype=torch.bool)
    is_known[0, 6:] = False
    said = nudged(truth, 0.1)
    lost = said.clone()
    lost[:, 0, 6:, :7] = torch.nn.functional.normalize(torch.randn(3, 4, 7), dim=-1)
    here, there = (losses.pose_losses(each, truth, is_known) for each in (said, lost))
    for one, other in zip(here[::2], there[::2], strict=True):
        torch.testing.assert_close(one, other)
    (place, _, step, _), alone = here, pose_losses(said[:, 1:], truth[1:])
    assert float(place) != pytest.approx(float(alone[0]))
    first, _, _, _ = pose_losses(said[:, :1, :6], truth[:1, :6])
    assert float(place) == pytest.approx((6 * float(first) + 10 * float(alone[0])) / 16, rel=1e-4)
    assert float(step) > 0


def test_sky_has_no_depth_and_only_sureness_costs_there() -> None:
    truth = 1 + torch.rand(1, 2, 4, 5, generator=torch.Generator().manual_seed(2))
    truth[..., :2, :] = torch.inf
    said = truth.clamp_max(7)
    sure, unsure = torch.ones_like(truth), torch.ones_like(truth)
    unsure[..., :2, :] = 0.2
    other = said.clone()
    other[..., :2, :] = 3
    for confidence in (sure, unsure):
        for one, two in zip(depth_losses(said, confidence, truth), depth_losses(other, confidence, truth), strict=True):
            torch.testing.assert_close(one, two)
    assert depth_losses(said, unsure, truth)[0] < depth_losses(said, sure, truth)[0]
    assert float(depth_losses(said, sure, truth)[1]) == float(depth_losses(said, sure, truth)[2]) == 0


def test_sky_is_left_out_of_the_unit_of_length(wandering: Clips) -> None:
    depth = wandering.depth.clone()
    depth[:, :, :9] = torch.inf
    got = targets(replace(wandering, depth=depth), 3)
    for clip in range(2):
        unit = float(depth[clip, :3, 9:].mean())
        torch.testing.assert_close(got.depth[clip, :, 9:], depth[clip, :, 9:] / unit)
    assert bool(got.depth[:, :, :9].isinf().all())
    assert bool(got.pose.isfinite().all())


def test_gradients_are_finite_beside_the_sky() -> None:
    truth = torch.ones(1, 1, 4, 4)
    truth[..., 0, :] = torch.inf
    said, confidence = torch.full((1, 1, 4, 4), 2.0, requires_grad=True), torch.ones(1, 1, 4, 4, requires_grad=True)
    depth, edge, _ = depth_losses(said, confidence, truth)
    (depth + edge).backward()
    assert bool(said.grad.isfinite().all())
    assert bool(confidence.grad.isfinite().all())
    assert not bool(said.grad[..., 0, :].any())
