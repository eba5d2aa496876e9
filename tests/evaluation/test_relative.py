"""Relative error: a slow version by matrix inversion, which frames are compared, and what goes unnoticed."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from longtake.errors import InputError, SettingError
from longtake.evaluation.absolute import absolute_error
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.association import PosePairs
from longtake.evaluation.relative import Delta, DeltaUnit, relative_error
from longtake.spatial.pose import matrix_from_quaternion
from longtake.spatial.similarity import Similarity

MakePairs = Callable[..., PosePairs]
seeds = st.integers(0, 10_000)
deltas = st.builds(Delta, length=st.integers(1, 4).map(float), unit=st.sampled_from(DeltaUnit), all_pairs=st.booleans())


def rigid_motion(seed: int) -> Similarity:
    numbers = torch.randn(7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Similarity(torch.ones((), dtype=torch.float64), matrix_from_quaternion(numbers[:4]), 5 * numbers[4:])


def slow_frames_apart(poses: np.ndarray, delta: Delta) -> list[tuple[int, int]]:
    def way(start: int, end: int) -> float:
        return sum(math.dist(poses[k, :3, 3], poses[k + 1, :3, 3]) for k in range(start, end))

    if delta.unit is DeltaUnit.FRAMES:
        starts = range(0, len(poses), 1 if delta.all_pairs else int(delta.length))
        return [(start, start + int(delta.length)) for start in starts if start + delta.length < len(poses)]
    if delta.all_pairs:
        found = []
        for start in range(len(poses) - 1):
            miss, end = min((abs(way(start, end) - delta.length), end) for end in range(start + 1, len(poses)))
            if miss <= 0.1 * delta.length:
                found.append((start, end))
        return found
    ends = [0]
    while after := [end for end in range(ends[-1] + 1, len(poses)) if way(ends[-1], end) >= delta.length]:
        ends.append(after[0])
    return list(pairwise(ends))


def slow_errors(pairs: PosePairs, delta: Delta, scale: float) -> tuple[list[float], list[float]]:
    result, truth = pairs.result.numpy().copy(), pairs.truth.numpy()
    result[:, :3, 3] *= scale
    translation, rotation = [], []
    for start, end in slow_frames_apart(result if delta.along_result else truth, delta):
        true_motion = np.linalg.inv(truth[start]) @ truth[end]
        error = np.linalg.inv(true_motion) @ np.linalg.inv(result[start]) @ result[end]
        translation.append(float(np.linalg.norm(error[:3, 3])))
        rotation.append(math.degrees(Rotation.from_matrix(error[:3, :3]).magnitude()))
    return translation, rotation


@given(seed=seeds, delta=deltas, along_result=st.booleans(), alignment_mode=st.sampled_from(AlignmentMode))
@settings(deadline=None, max_examples=80)
def test_errors_are_those_of_the_slow_version(
    make_pairs: MakePairs, seed: int, delta: Delta, along_result: bool, alignment_mode: AlignmentMode
) -> None:
    pairs, delta = make_pairs(seed), replace(delta, along_result=along_result)
    scale = absolute_error(pairs, alignment_mode=alignment_mode).scale
    translation, rotation = slow_errors(pairs, delta, scale)
    if not translation:
        with pytest.raises(InputError, match="No two"):
            relative_error(pairs, delta=delta, alignment_mode=alignment_mode)
        return
    found = relative_error(pairs, delta=delta, alignment_mode=alignment_mode)
    assert found.translation_by_pair.tolist() == pytest.approx(translation, rel=1e-8)
    assert found.rotation_deg_by_pair.tolist() == pytest.approx(rotation, rel=1e-6, abs=1e-6)
    assert found.translation.rmse == pytest.approx(math.sqrt(np.square(translation).mean()), rel=1e-8)


def test_error_has_the_time_of_the_later_frame(make_pairs: MakePairs) -> None:
    found = relative_error(make_pairs(0), delta=Delta(length=5.0))
    assert found.timestamp_s.tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("x", "all_ends", "consecutive_ends"),
    [
        ([0.0, 0, 1, 1, 1, 2, 2], [2, 2, 5, 5, 5], [2, 5]),
        ([0.0, 15 / 16, 15 / 16, 17 / 16, 3], [1], [3, 4]),
        ([0.0, 0.875, 2], [], [2]),
    ],
)
def test_all_pairs_end_nearest_and_first_and_consecutive_ones_at_or_after_the_distance(
    x: list[float], all_ends: list[float], consecutive_ends: list[float]
) -> None:
    poses = torch.eye(4, dtype=torch.float64).repeat(len(x), 1, 1)
    poses[:, 0, 3] = torch.tensor(x, dtype=torch.float64)
    pairs = PosePairs(timestamp_s=torch.arange(len(x)).double(), result=poses, truth=poses)
    every = Delta(length=1.0, unit=DeltaUnit.METRES, all_pairs=True)
    assert relative_error(pairs, delta=replace(every, all_pairs=False)).timestamp_s.tolist() == consecutive_ends
    if all_ends:
        assert relative_error(pairs, delta=every).timestamp_s.tolist() == all_ends
    else:
        with pytest.raises(InputError, match="No two"):
            relative_error(pairs, delta=every)


@given(seed=seeds, delta=deltas, whose=st.sampled_from(["result", "truth"]))
@settings(deadline=None, max_examples=40)
def test_moving_either_world_changes_nothing(make_pairs: MakePairs, seed: int, delta: Delta, whose: str) -> None:
    delta = replace(delta, unit=DeltaUnit.FRAMES)
    pairs, moved = make_pairs(seed), rigid_motion(seed)
    before = relative_error(pairs, delta=delta)
    poses = pairs.result if whose == "result" else pairs.truth
    after = relative_error(replace(pairs, **{whose: moved.of_cameras(poses)}), delta=delta)
    torch.testing.assert_close(after.translation_by_pair, before.translation_by_pair, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(after.rotation_deg_by_pair, before.rotation_deg_by_pair, rtol=1e-8, atol=1e-6)


@given(seed=seeds, factor=st.floats(0.01, 100))
@settings(deadline=None, max_examples=30)
def test_scale_of_the_result_matters_only_where_it_is_fixed(make_pairs: MakePairs, seed: int, factor: float) -> None:
    pairs = make_pairs(seed)
    scaled = replace(pairs, result=pairs.result.clone())
    scaled.result[:, :3, 3] *= factor
    before, after = (relative_error(each).translation_by_pair for each in (pairs, scaled))
    torch.testing.assert_close(after, before, rtol=1e-7, atol=1e-9)
    if abs(math.log(factor)) > 0.1:
        fixed = (relative_error(each, alignment_mode=AlignmentMode.SE3).translation.rmse for each in (pairs, scaled))
        assert abs(math.log(next(fixed) / next(fixed))) > 1e-9


@given(seed=seeds, delta=deltas)
@settings(deadline=None, max_examples=30)
def test_result_and_truth_may_change_places_where_scale_is_fixed(
    make_pairs: MakePairs, seed: int, delta: Delta
) -> None:
    delta = replace(delta, unit=DeltaUnit.FRAMES)
    pairs = make_pairs(seed)
    swapped = replace(pairs, result=pairs.truth, truth=pairs.result)
    one, other = (relative_error(each, delta=delta, alignment_mode=AlignmentMode.NONE) for each in (pairs, swapped))
    torch.testing.assert_close(one.translation_by_pair, other.translation_by_pair)
    torch.testing.assert_close(one.rotation_deg_by_pair, other.rotation_deg_by_pair)


@pytest.mark.parametrize("alignment_mode", list(AlignmentMode))
def test_equal_trajectories_have_no_error(make_pairs: MakePairs, alignment_mode: AlignmentMode) -> None:
    found = relative_error(make_pairs(0, noise=0.0), alignment_mode=alignment_mode)
    assert found.translation.max < 1e-12
    assert found.rotation_deg.max < 1e-6


def test_one_wrong_step_is_one_wrong_pair(make_pairs: MakePairs) -> None:
    pairs = make_pairs(0, noise=0.0)
    jumped = replace(pairs, result=pairs.result.clone())
    jumped.result[6:, :3, 3] += 1
    found = relative_error(jumped, alignment_mode=AlignmentMode.NONE)
    wrong = (found.translation_by_pair > 1e-9).nonzero().flatten().tolist()
    assert wrong == [5]
    assert found.translation.max == pytest.approx(3**0.5)


@pytest.mark.parametrize("unit", list(DeltaUnit))
@pytest.mark.parametrize("all_pairs", [False, True])
def test_distance_beyond_the_path_is_refused(make_pairs: MakePairs, unit: DeltaUnit, all_pairs: bool) -> None:
    for length in (1000.0, 1e300):
        with pytest.raises(InputError, match=rf"No two of 12 matched poses on a path of .* {unit} apart"):
            relative_error(make_pairs(0), delta=Delta(length=length, unit=unit, all_pairs=all_pairs))


@pytest.mark.parametrize("length", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("unit", list(DeltaUnit))
def test_distance_must_be_positive(length: float, unit: DeltaUnit) -> None:
    with pytest.raises(SettingError, match="must be positive"):
        Delta(length=length, unit=unit)


def test_distance_in_frames_must_be_whole() -> None:
    with pytest.raises(SettingError, match=r"whole number, but 1\.5 came"):
        Delta(length=1.5)
