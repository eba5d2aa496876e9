"""ICP: finds small motions, never gets worse, leaves alone what is not free."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.registration import Icp, register
from longtake.spatial.pose import matrix_from_quaternion
from longtake.spatial.similarity import Similarity

STILL = Similarity.identity(torch.device("cpu"))


def random_numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def corner_with_a_ball(seed: int, count: int = 400) -> Tensor:
    """Two walls, a floor and a ball, in metres."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, 3, generator=generator, dtype=torch.float64)
    part = torch.arange(count) % 4
    for axis in range(3):
        points[part == axis, axis] = 0
    ball = torch.nn.functional.normalize(torch.randn(count, 3, generator=generator, dtype=torch.float64), dim=1)
    points[part == 3] = 0.6 + 0.2 * ball[part == 3]
    return points * torch.tensor([4.0, 3.0, 2.5], dtype=torch.float64)


def small_motion(seed: int, *, with_scale: bool) -> Similarity:
    numbers = random_numbers(seed, 7)
    scale = (0.02 * numbers[0]).exp() if with_scale else torch.ones((), dtype=torch.float64)
    turn = matrix_from_quaternion(torch.cat([0.02 * numbers[1:4], torch.ones(1, dtype=torch.float64)]))
    return Similarity(scale, turn, 0.04 * numbers[4:])


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), alignment_mode=st.sampled_from([AlignmentMode.SE3, AlignmentMode.SIM3]))
def test_small_motion_of_a_structured_cloud_is_found(seed: int, alignment_mode: AlignmentMode) -> None:
    cloud = corner_with_a_ball(seed)
    motion = small_motion(seed + 1, with_scale=alignment_mode is AlignmentMode.SIM3)
    found = register(cloud, motion.of_points(cloud), STILL, Icp(alignment_mode=alignment_mode))
    torch.testing.assert_close(found.target_from_source.matrix, motion.matrix, rtol=0, atol=1e-3)
    assert found.has_converged


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    alignment_mode=st.sampled_from([AlignmentMode.SE3, AlignmentMode.SIM3]),
    kept_share=st.floats(0.3, 1),
)
def test_error_never_rises_even_between_clouds_that_do_not_fit(
    seed: int, alignment_mode: AlignmentMode, kept_share: float
) -> None:
    source, target = random_numbers(seed, 60, 3), corner_with_a_ball(seed + 1, count=90)
    found = register(source, target, STILL, Icp(alignment_mode=alignment_mode, kept_share=kept_share))
    assert all(after < before for before, after in zip(found.errors, found.errors[1:], strict=False))
    assert len(found.errors) <= 51


def slow_error(source: Tensor, target: Tensor, icp: Icp) -> float:
    """Root mean square of the nearest pairs, by all distances."""
    distances = torch.cdist(source, target)
    ways = [distances.min(dim=1).values]
    if icp.alignment_mode is AlignmentMode.SIM3:
        ways.append(distances.min(dim=0).values)
    kept = [sorted(way.tolist())[: math.ceil(icp.kept_share * len(way))] for way in ways]
    squares = [distance**2 for way in kept for distance in way]
    return math.sqrt(sum(squares) / len(squares))


@pytest.mark.parametrize("alignment_mode", AlignmentMode)
def test_errors_are_those_of_all_distances_at_the_start_and_the_end(alignment_mode: AlignmentMode) -> None:
    icp = Icp(alignment_mode=alignment_mode, kept_share=0.77, max_iterations=5)
    source, target = corner_with_a_ball(1, count=101), corner_with_a_ball(2, count=83)
    start = small_motion(3, with_scale=True)
    found = register(source, target, start, icp)
    assert found.errors[0] == pytest.approx(slow_error(start.of_points(source), target, icp), rel=1e-9)
    ended = found.target_from_source.of_points(source)
    assert found.errors[-1] == pytest.approx(slow_error(ended, target, icp), rel=1e-9)


def test_three_pairs_count_at_least() -> None:
    source, target = corner_with_a_ball(1), corner_with_a_ball(2)
    least = sorted(torch.cdist(source, target).min(dim=1).values.tolist())[:3]
    found = register(source, target, STILL, Icp(alignment_mode=AlignmentMode.NONE, kept_share=1e-6))
    assert found.errors[0] == pytest.approx(math.sqrt(sum(distance**2 for distance in least) / 3), rel=1e-9)


def test_what_is_not_free_stays_as_it_started() -> None:
    source, target = corner_with_a_ball(1), corner_with_a_ball(2)
    start = small_motion(4, with_scale=True)
    fixed = register(source, target, start, Icp(alignment_mode=AlignmentMode.NONE))
    torch.testing.assert_close(fixed.target_from_source.matrix, start.matrix)
    assert (len(fixed.errors), fixed.has_converged) == (1, True)
    rigid = register(source, target, start, Icp(alignment_mode=AlignmentMode.SE3))
    assert float(rigid.target_from_source.scale) == pytest.approx(float(start.scale), rel=1e-12)
    assert rigid.errors[-1] < rigid.errors[0]


def test_equal_clouds_do_not_move() -> None:
    cloud = corner_with_a_ball(5)
    for alignment_mode in AlignmentMode:
        found = register(cloud, cloud, STILL, Icp(alignment_mode=alignment_mode))
        assert found.errors == (0.0,)
        assert found.has_converged
        torch.testing.assert_close(found.target_from_source.matrix, torch.eye(4, dtype=torch.float64))


def test_trimming_withstands_points_the_target_lacks() -> None:
    cloud = corner_with_a_ball(6)
    motion = small_motion(7, with_scale=False)
    stray = 8 + random_numbers(8, 40, 3)
    source = torch.cat([cloud, stray])
    trimmed = register(source, motion.of_points(cloud), STILL, Icp(kept_share=0.9))
    torch.testing.assert_close(trimmed.target_from_source.matrix, motion.matrix, rtol=0, atol=1e-6)
    whole = register(source, motion.of_points(cloud), STILL, Icp(kept_share=1.0))
    assert float((whole.target_from_source.matrix - motion.matrix).abs().max()) > 0.1


def test_free_scale_does_not_shrink_between_two_samples_of_one_surface() -> None:
    source, target = corner_with_a_ball(9, count=2000), corner_with_a_ball(10, count=2000)
    found = register(source, 1.02 * target, STILL, Icp(alignment_mode=AlignmentMode.SIM3))
    assert float(found.target_from_source.scale) == pytest.approx(1.02, abs=0.01)


def test_same_clouds_give_the_very_same_result_in_any_precision() -> None:
    source, target = corner_with_a_ball(11).float(), corner_with_a_ball(12).float()
    once, again = (register(some, target, STILL, Icp()) for some in (source, source.double()))
    assert once.errors == again.errors
    assert torch.equal(once.target_from_source.matrix, again.target_from_source.matrix)


def test_iterations_are_bounded() -> None:
    source, target = corner_with_a_ball(13), corner_with_a_ball(14)
    for allowed in (0, 1, 3):
        found = register(source, target, STILL, Icp(max_iterations=allowed, least_gain=0.0))
        assert len(found.errors) == allowed + 1
        assert not found.has_converged


@pytest.mark.parametrize("alignment_mode", AlignmentMode)
def test_clouds_without_extent_are_only_shifted(alignment_mode: AlignmentMode) -> None:
    source, target = torch.zeros(5, 3), torch.ones(4, 3)
    found = register(source, target, STILL, Icp(alignment_mode=alignment_mode))
    assert found.target_from_source.matrix.isfinite().all()
    assert float(found.target_from_source.scale) == 1
    assert found.errors[-1] == pytest.approx(0 if alignment_mode is not AlignmentMode.NONE else math.sqrt(3))


@pytest.mark.parametrize("kept_share", [0.0, -0.1, 1.1, math.nan])
def test_kept_share_must_be_a_share(kept_share: float) -> None:
    with pytest.raises(SettingError, match="share of pairs ICP keeps must be above 0 and at most 1"):
        Icp(kept_share=kept_share)


def test_iterations_and_gain_must_not_be_negative() -> None:
    with pytest.raises(SettingError, match="ICP cannot run -1 iterations"):
        Icp(max_iterations=-1)
    for bad in (-1e-3, math.nan):
        with pytest.raises(SettingError, match="least gain of an ICP iteration must be 0 or more"):
            Icp(least_gain=bad)


def test_bad_clouds_and_starts_are_refused() -> None:
    cloud = corner_with_a_ball(15)
    with pytest.raises(InputError, match="Expected 3 or more predicted points, but 2 came"):
        register(cloud[:2], cloud, STILL, Icp())
    with pytest.raises(InputError, match="Expected 3 or more true points, but 0 came"):
        register(cloud, cloud[:0], STILL, Icp())
    with pytest.raises(InputError, match="Expected finite true points"):
        register(cloud, cloud * torch.nan, STILL, Icp())
    for scale in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="must start finite and with a positive scale"):
            register(cloud, cloud, Similarity(torch.tensor(scale), torch.eye(3), torch.zeros(3)), Icp())
