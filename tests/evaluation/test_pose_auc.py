"""Pose AUC against a slow version, and what it makes of cameras that stand still or go backwards."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from longtake.errors import SettingError
from longtake.evaluation.association import PosePairs
from longtake.evaluation.pose_auc import pose_auc
from longtake.spatial.pose import matrix_from_quaternion, rigid_pose
from longtake.spatial.similarity import Similarity

MakePairs = Callable[..., PosePairs]
seeds = st.integers(0, 10_000)


def slow_error_deg(pairs: PosePairs, *, signed: bool) -> list[float]:
    result, truth = pairs.result.numpy(), pairs.truth.numpy()
    errors = []
    for i in range(len(pairs)):
        for j in range(i + 1, len(pairs)):
            a, b = np.linalg.inv(result[i]) @ result[j], np.linalg.inv(truth[i]) @ truth[j]
            turned = math.degrees(Rotation.from_matrix(np.linalg.inv(b[:3, :3]) @ a[:3, :3]).magnitude())
            cosine = a[:3, 3] @ b[:3, 3] / np.linalg.norm(a[:3, 3]) / np.linalg.norm(b[:3, 3])
            aside = math.degrees(math.acos(np.clip(cosine if signed else abs(cosine), -1, 1)))
            errors.append(max(turned, aside))
    return errors


def slow_auc(errors: list[float], threshold_deg: int) -> float:
    shares = [sum(error < degree for error in errors) / len(errors) for degree in range(1, threshold_deg + 1)]
    return sum(shares) / threshold_deg


@given(seed=seeds, noise=st.sampled_from([0.001, 0.02, 0.2]), signed=st.booleans())
@settings(deadline=None, max_examples=40)
def test_auc_is_that_of_the_slow_version(make_pairs: MakePairs, seed: int, noise: float, signed: bool) -> None:
    pairs = make_pairs(seed, num_frames=7, noise=noise)
    found = pose_auc(pairs, signed=signed)
    errors = slow_error_deg(pairs, signed=signed)
    assert found.error_deg_by_pair.tolist() == pytest.approx(errors, abs=1e-5)
    assert found.threshold_deg == (3, 5, 15, 30)
    assert found.auc == pytest.approx([slow_auc(errors, threshold) for threshold in (3, 5, 15, 30)])


def test_auc_of_known_errors_is_a_mean_over_whole_degrees() -> None:
    truth = torch.eye(4, dtype=torch.float64).repeat(2, 1, 1)
    turn = torch.tensor([0, 0, math.sin(math.radians(1.25)), math.cos(math.radians(1.25))], dtype=torch.float64)
    result = truth.clone()
    result[1, :3, :3] = matrix_from_quaternion(turn)
    found = pose_auc(PosePairs(timestamp_s=torch.arange(2).double(), result=result, truth=truth))
    assert found.error_deg_by_pair.tolist() == pytest.approx([2.5])
    assert found.auc == pytest.approx((1 / 3, 3 / 5, 13 / 15, 28 / 30))


@given(seed=seeds)
@settings(deadline=None, max_examples=20)
def test_similarities_of_either_world_change_nothing(make_pairs: MakePairs, seed: int) -> None:
    pairs = make_pairs(seed)
    numbers = torch.randn(8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    moved = Similarity(numbers[0].exp(), matrix_from_quaternion(numbers[1:5]), numbers[5:])
    for other in (
        replace(pairs, result=moved.of_cameras(pairs.result)),
        replace(pairs, truth=moved.of_cameras(pairs.truth)),
    ):
        torch.testing.assert_close(
            pose_auc(other).error_deg_by_pair, pose_auc(pairs).error_deg_by_pair, rtol=0, atol=1e-6
        )


def test_equal_trajectories_are_all_right(make_pairs: MakePairs) -> None:
    assert pose_auc(make_pairs(0, noise=0.0)).auc == (1, 1, 1, 1)


def test_backwards_is_right_unless_signs_count(make_pairs: MakePairs) -> None:
    pairs = make_pairs(0, noise=0.0)
    mirrored = replace(pairs, result=rigid_pose(pairs.truth[:, :3, :3], -pairs.truth[:, :3, 3]))
    assert pose_auc(mirrored).auc == (1, 1, 1, 1)
    assert pose_auc(mirrored, signed=True).error_deg_by_pair.min() == pytest.approx(180)


def test_where_the_truth_stands_still_rotation_counts_alone(make_pairs: MakePairs) -> None:
    pairs = make_pairs(0)
    centres = torch.tensor([0.0, 0, 0, 1])[:, None].double().expand(4, 3)
    turning = PosePairs(
        timestamp_s=pairs.timestamp_s[:4],
        result=pairs.result[:4],
        truth=rigid_pose(pairs.result[:4, :3, :3], centres),
    )
    still = pose_auc(turning).error_deg_by_pair[[0, 1, 3]]
    assert still.max() < 1e-6
    assert pose_auc(turning).error_deg_by_pair[[2, 4, 5]].min() > 1


@pytest.mark.parametrize(("signed", "worst"), [(False, 90.0), (True, 180.0)])
def test_where_only_the_result_stands_still_it_is_as_wrong_as_can_be(
    make_pairs: MakePairs, signed: bool, worst: float
) -> None:
    pairs = make_pairs(0)
    stuck = replace(pairs, result=rigid_pose(pairs.truth[:, :3, :3], torch.full((12, 3), 7.0).double()))
    found = pose_auc(stuck, signed=signed)
    assert found.error_deg_by_pair.tolist() == pytest.approx([worst] * 66)
    assert found.auc == (0, 0, 0, 0)


def test_long_trajectories_are_judged_by_evenly_spaced_frames(make_pairs: MakePairs) -> None:
    pairs = make_pairs(0, num_frames=31)
    found = pose_auc(pairs, max_frames=4)
    chosen = replace(pairs, timestamp_s=pairs.timestamp_s[::10], result=pairs.result[::10], truth=pairs.truth[::10])
    assert found.num_frames == 4
    assert torch.equal(found.error_deg_by_pair, pose_auc(chosen).error_deg_by_pair)
    assert len(pose_auc(make_pairs(0, num_frames=700)).error_deg_by_pair) == 450 * 449 // 2


def test_meaningless_settings_are_refused(make_pairs: MakePairs) -> None:
    with pytest.raises(SettingError, match=r"whole degrees from 1 to 180, but \[5, 0\] came"):
        pose_auc(make_pairs(0), threshold_deg=[5, 0])
    with pytest.raises(SettingError, match="2 frames at least"):
        pose_auc(make_pairs(0), max_frames=1)
