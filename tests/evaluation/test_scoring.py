"""Runs against the truth: what is put in is what is found."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.evaluation.agreement import ClipGeometry
from longtake.evaluation.baselines import constant_velocity, one_depth, score_baselines, straight_line
from longtake.evaluation.scoring import Summary, fov_error_deg, score, summary_over_worlds
from longtake.spatial.pinhole import intrinsics_from_fov
from longtake.spatial.pose import matrix_from_quaternion, rigid_pose

FRAMES = 12


def turn(axis: int, degrees: float) -> Tensor:
    quaternion = torch.zeros(4, dtype=torch.float64)
    quaternion[axis], quaternion[3] = math.sin(math.radians(degrees) / 2), math.cos(math.radians(degrees) / 2)
    return matrix_from_quaternion(quaternion)


def walk(seed: int = 0, num_frames: int = FRAMES) -> ClipGeometry:
    """Cameras that go and turn at random, and depths between 1 and 3."""
    generator = torch.Generator().manual_seed(seed)
    steps = 0.1 * torch.randn(num_frames, 3, generator=generator, dtype=torch.float64)
    quaternions = torch.randn(num_frames, 4, generator=generator, dtype=torch.float64)
    poses = rigid_pose(matrix_from_quaternion(quaternions), steps.cumsum(dim=0))
    return ClipGeometry(1 + 2 * torch.rand(num_frames, 3, 5, generator=generator), poses)


@pytest.mark.parametrize("depth_scale", [1.0, 0.2, 7.0])
@given(seed=st.integers(0, 1000), scale=st.floats(0.05, 20), axis=st.integers(0, 2), degrees=st.floats(-180, 180))
@settings(deadline=None, max_examples=10)
def test_truth_in_another_unit_and_world_is_met_exactly(
    depth_scale: float, seed: int, scale: float, axis: int, degrees: float
) -> None:
    truth = walk(seed)
    rotation, poses = turn(axis, degrees), truth.world_from_camera
    centres = scale * poses[:, :3, 3] @ rotation.T + torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    found = score(ClipGeometry(depth_scale * truth.depth, rigid_pose(rotation @ poses[:, :3, :3], centres)), truth)
    assert found.ate_share == pytest.approx(0, abs=1e-9)
    assert found.rotation_deg == pytest.approx(0, abs=1e-5)
    assert found.rotation_since_first_deg == pytest.approx(0, abs=1e-5)
    assert found.step_rotation_deg == pytest.approx(0, abs=1e-5)
    assert found.step_share == pytest.approx(0, abs=1e-9)
    assert found.scale_range == pytest.approx(1)
    assert found.scale_drift_percent == pytest.approx(0, abs=1e-6)
    assert found.depth_abs_rel == pytest.approx(0, abs=2e-5)
    assert found.depth_delta_1 == 1


def test_camera_that_is_turned_in_its_own_axes_is_wrong_by_that_turn() -> None:
    truth = walk()
    poses = truth.world_from_camera.clone()
    poses[:, :3, :3] = poses[:, :3, :3] @ turn(1, 7.0)
    found = score(ClipGeometry(truth.depth, poses), truth)
    assert found.ate_share == pytest.approx(0, abs=1e-9)
    assert found.rotation_deg == pytest.approx(7, abs=1e-6)


def test_turn_since_the_first_frame_counts_those_that_came_later() -> None:
    truth = walk(num_frames=6)
    poses = truth.world_from_camera.clone()
    poses[1:, :3, :3] = poses[1:, :3, :3] @ turn(2, 5.0)
    assert score(ClipGeometry(truth.depth, poses), truth).rotation_since_first_deg == pytest.approx(5, abs=1e-6)


def test_share_of_path_is_that_of_a_plain_sum() -> None:
    truth, run = walk(0), walk(1)
    want, got = (seen.world_from_camera[:, :3, 3].numpy() for seen in (truth, run))
    a, b = got - got.mean(axis=0), want - want.mean(axis=0)
    u, spread, vt = np.linalg.svd(b.T @ a)
    signs = np.diag([1, 1, np.sign(np.linalg.det(u @ vt))])
    scale = np.trace(np.diag(spread) @ signs) / (a**2).sum()
    left = b - scale * a @ (u @ signs @ vt).T
    path = sum(math.dist(here, there) for here, there in itertools.pairwise(want))
    assert score(run, truth).ate_share == pytest.approx(math.sqrt((left**2).sum(axis=1).mean()) / path)


def test_truth_that_stands_still_has_no_path_to_divide_by() -> None:
    truth = walk()
    still = ClipGeometry(truth.depth, truth.world_from_camera[:1].repeat(FRAMES, 1, 1))
    found = score(truth, still)
    assert found.ate_share is None
    assert found.step_share is None
    assert found.scale_range is None
    assert found.scale_drift_percent is None
    assert score_baselines(still).velocity_ate_share is None


def test_run_that_stops_for_a_while_has_no_finite_range_of_scales() -> None:
    truth = walk(num_frames=31)
    poses = truth.world_from_camera.clone()
    poses[10:20, :3, 3] = poses[10, :3, 3]
    found = score(ClipGeometry(truth.depth, poses), truth)
    assert found.scale_range is None
    assert found.scale_drift_percent is not None


def test_constant_velocity_repeats_the_first_motion() -> None:
    truth = walk().world_from_camera
    first, motion = truth[0].numpy(), np.linalg.inv(truth[0].numpy()) @ truth[1].numpy()
    want = np.stack([first @ np.linalg.matrix_power(motion, count) for count in range(FRAMES)])
    np.testing.assert_allclose(constant_velocity(truth).numpy(), want, atol=1e-12)


def test_camera_that_turns_as_it_goes_is_followed_exactly_by_constant_velocity() -> None:
    step = rigid_pose(turn(1, 9.0), torch.tensor([0.02, 0.0, 0.1], dtype=torch.float64))
    poses = [walk().world_from_camera[0]]
    for _ in range(FRAMES - 1):
        poses.append(poses[-1] @ step)
    found = score_baselines(ClipGeometry(walk().depth, torch.stack(poses)))
    assert found.velocity_ate_share == pytest.approx(0, abs=1e-9)
    assert found.unaligned_velocity_ate_share == pytest.approx(0, abs=1e-9)
    assert found.straight_ate_share is not None
    assert found.straight_ate_share > 0.01


def test_straight_line_goes_on_and_never_turns() -> None:
    truth = walk().world_from_camera
    line = straight_line(truth)
    step = truth[1, :3, 3] - truth[0, :3, 3]
    torch.testing.assert_close(line[5, :3, 3], truth[0, :3, 3] + 5 * step)
    assert torch.equal(line[:, :3, :3], truth[:1, :3, :3].expand(FRAMES, 3, 3))


@given(seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_moving_on_is_never_worse_than_standing_still_once_aligned(seed: int) -> None:
    truth = walk(seed)
    found = score_baselines(truth)
    centres = truth.world_from_camera[:, :3, 3]
    path = centres.diff(dim=0).norm(dim=-1).sum()
    spread = (centres - centres.mean(dim=0)).norm(dim=-1).square().mean().sqrt()
    assert found.still_ate_share == pytest.approx(float(spread / path))
    for share in (found.velocity_ate_share, found.straight_ate_share):
        assert share is not None
        assert share <= found.still_ate_share + 1e-12


def test_one_depth_becomes_the_median_depth_of_the_walk() -> None:
    truth = walk()
    middle = truth.depth.median()
    want = float(((truth.depth - middle).abs() / truth.depth).mean())
    assert score_baselines(truth).mean_depth_abs_rel == pytest.approx(want, rel=1e-4)
    assert one_depth(truth.depth).unique().tolist() == [1.0]


def test_field_of_view_is_wrong_by_the_mean_of_both_axes() -> None:
    true = intrinsics_from_fov(torch.tensor([1.0, 1.2]), 98, 126)
    found = intrinsics_from_fov(torch.tensor([[1.0, 1.2], [1.02, 1.2], [1.0, 1.16]]), 98, 126)
    assert fov_error_deg(found, true, height=98, width=126) == pytest.approx(math.degrees(0.01), rel=1e-4)


def test_summary_is_median_and_quartiles_and_the_interval_that_of_medians_drawn_again() -> None:
    values = [1.0, 2.0, 4.0, 5.5, 9.0]
    every = [np.median(drawn) for drawn in itertools.product(values, repeat=5)]
    found = summary_over_worlds([*values, None])
    assert found is not None
    assert (found.num_worlds, found.median, found.lower_quartile, found.upper_quartile) == (5, 4.0, 2.0, 5.5)
    assert found.low == np.quantile(every, 0.025)
    assert found.high == np.quantile(every, 0.975)
    assert found == summary_over_worlds(values)


@given(values=st.lists(st.floats(0, 100), min_size=2, max_size=30))
@settings(deadline=None, max_examples=20)
def test_interval_contains_the_median(values: list[float]) -> None:
    found = summary_over_worlds(values)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.median <= found.high


def test_interval_needs_two_worlds_and_a_summary_one_that_has_a_value() -> None:
    alone = Summary(num_worlds=1, median=3.0, lower_quartile=3.0, upper_quartile=3.0, low=None, high=None)
    assert summary_over_worlds([3.0]) == summary_over_worlds([None, 3.0]) == alone
    assert summary_over_worlds([None]) is None
