"""Absolute error: a slow version, what it does not notice, what it tells apart."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from longtake.evaluation.absolute import absolute_error
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.association import PosePairs
from longtake.spatial.pose import matrix_from_quaternion, rigid_pose
from longtake.spatial.similarity import Similarity

MakePairs = Callable[..., PosePairs]
seeds = st.integers(0, 10_000)


def random_similarity(seed: int, *, with_scale: bool) -> Similarity:
    numbers = torch.randn(8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    scale = numbers[0].exp() if with_scale else torch.ones((), dtype=torch.float64)
    return Similarity(scale, matrix_from_quaternion(numbers[1:5]), 5 * numbers[5:])


def slow_errors(pairs: PosePairs, alignment_mode: AlignmentMode) -> tuple[list[float], list[float]]:
    """Distances and angles, frame by frame, after a search for the best motion from many starts."""
    source, target = pairs.result[:, :3, 3].numpy(), pairs.truth[:, :3, 3].numpy()

    def moved(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        turn = Rotation.from_rotvec(numbers[:3]).as_matrix()
        scale = math.exp(numbers[6]) if alignment_mode is AlignmentMode.SIM3 else 1.0
        return scale * source @ turn.T + numbers[3:6], turn

    best = np.zeros(7)
    if alignment_mode is not AlignmentMode.NONE:
        starts = np.random.default_rng(0).normal(size=(8, 7))
        fits = [
            least_squares(lambda x: (moved(x)[0] - target).ravel(), start, xtol=1e-14, ftol=1e-14) for start in starts
        ]
        best = min(fits, key=lambda fit: fit.cost).x
    centres, turn = moved(best)
    distances = [math.dist(a, b) for a, b in zip(centres, target, strict=True)]
    angles = []
    for result, truth in zip(pairs.result.numpy(), pairs.truth.numpy(), strict=True):
        error = np.linalg.inv(truth[:3, :3]) @ turn @ result[:3, :3]
        angles.append(math.degrees(Rotation.from_matrix(error).magnitude()))
    return distances, angles


@pytest.mark.parametrize("alignment_mode", list(AlignmentMode))
@pytest.mark.parametrize("seed", range(3))
def test_errors_are_those_of_the_slow_version(make_pairs: MakePairs, alignment_mode: AlignmentMode, seed: int) -> None:
    pairs = make_pairs(seed, noise=0.3)
    error = absolute_error(pairs, alignment_mode=alignment_mode)
    distances, angles = slow_errors(pairs, alignment_mode)
    assert error.translation_by_frame.tolist() == pytest.approx(distances, rel=1e-5)
    assert error.rotation_deg_by_frame.tolist() == pytest.approx(angles, rel=1e-5)
    assert error.translation.rmse == pytest.approx(math.sqrt(np.square(distances).mean()), rel=1e-6)
    assert error.rotation_deg.max == pytest.approx(max(angles), rel=1e-5)
    assert torch.equal(error.timestamp_s, pairs.timestamp_s)


@given(seed=seeds, alignment_mode=st.sampled_from([AlignmentMode.SIM3, AlignmentMode.SE3]))
@settings(deadline=None, max_examples=40)
def test_moving_the_result_as_it_is_free_to_changes_nothing(
    make_pairs: MakePairs, seed: int, alignment_mode: AlignmentMode
) -> None:
    pairs = make_pairs(seed)
    moved = random_similarity(seed, with_scale=alignment_mode is AlignmentMode.SIM3)
    before = absolute_error(pairs, alignment_mode=alignment_mode)
    after = absolute_error(replace(pairs, result=moved.of_cameras(pairs.result)), alignment_mode=alignment_mode)
    torch.testing.assert_close(after.translation_by_frame, before.translation_by_frame, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(after.rotation_deg_by_frame, before.rotation_deg_by_frame, rtol=1e-8, atol=1e-6)


@given(seed=seeds, alignment_mode=st.sampled_from([AlignmentMode.SE3, AlignmentMode.NONE]))
@settings(deadline=None, max_examples=30)
def test_result_and_truth_may_change_places_where_scale_is_fixed(
    make_pairs: MakePairs, seed: int, alignment_mode: AlignmentMode
) -> None:
    pairs = make_pairs(seed)
    swapped = replace(pairs, result=pairs.truth, truth=pairs.result)
    errors = [absolute_error(each, alignment_mode=alignment_mode) for each in (pairs, swapped)]
    torch.testing.assert_close(errors[0].translation_by_frame, errors[1].translation_by_frame)
    torch.testing.assert_close(errors[0].rotation_deg_by_frame, errors[1].rotation_deg_by_frame)


@given(seed=seeds)
@settings(deadline=None, max_examples=30)
def test_more_freedom_leaves_no_more_error(make_pairs: MakePairs, seed: int) -> None:
    pairs = make_pairs(seed, noise=1.0)
    sim3, se3, none = (
        absolute_error(pairs, alignment_mode=alignment_mode).translation.rmse for alignment_mode in AlignmentMode
    )
    assert sim3 <= se3 + 1e-12
    assert se3 <= none + 1e-12


@pytest.mark.parametrize("alignment_mode", list(AlignmentMode))
def test_equal_trajectories_have_no_error(make_pairs: MakePairs, alignment_mode: AlignmentMode) -> None:
    pairs = make_pairs(0, noise=0.0)
    error = absolute_error(pairs, alignment_mode=alignment_mode)
    assert error.translation.max < 1e-12
    assert error.rotation_deg.max < 1e-6
    assert error.scale == pytest.approx(1)


def test_only_a_free_scale_forgives_a_wrong_one(make_pairs: MakePairs) -> None:
    pairs = make_pairs(0)
    half = replace(pairs, result=random_similarity(1, with_scale=False).of_cameras(pairs.truth))
    half.result[:, :3, 3] /= 2
    assert absolute_error(half, alignment_mode=AlignmentMode.SIM3).translation.max < 1e-12
    assert absolute_error(half, alignment_mode=AlignmentMode.SIM3).scale == pytest.approx(2)
    assert absolute_error(half, alignment_mode=AlignmentMode.SE3).translation.rmse > 0.1


def test_error_is_told_as_a_share_of_the_path() -> None:
    truth = torch.eye(4, dtype=torch.float64).repeat(5, 1, 1)
    truth[:, 0, 3] = torch.arange(5)
    result = truth.clone()
    result[:, 1, 3] = 0.4
    pairs = PosePairs(timestamp_s=torch.arange(5).double(), result=result, truth=truth)
    error = absolute_error(pairs, alignment_mode=AlignmentMode.NONE)
    assert error.path_length == 4
    assert error.share_of_path == pytest.approx(0.1)


@pytest.mark.parametrize("alignment_mode", list(AlignmentMode))
def test_camera_that_stands_still_has_errors_but_no_share(make_pairs: MakePairs, alignment_mode: AlignmentMode) -> None:
    pairs = make_pairs(0)
    still = rigid_pose(pairs.truth[:, :3, :3], torch.ones(12, 3).double())
    stuck = absolute_error(replace(pairs, result=still), alignment_mode=alignment_mode)
    assert math.isfinite(stuck.translation.rmse)
    nowhere = absolute_error(replace(pairs, truth=still), alignment_mode=alignment_mode)
    assert math.isfinite(nowhere.translation.rmse)
    assert nowhere.share_of_path is None
