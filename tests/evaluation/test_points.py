"""Cloud errors against all distances, what exchanging the clouds does, and what is refused."""

import math
import statistics
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.errors import InputError, MissingExtraError, SettingError
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.points import Cloud, measure_points
from longtake.evaluation.registration import Icp, register
from longtake.spatial.pose import matrix_from_quaternion
from longtake.spatial.similarity import Similarity, best_similarity


def random_cloud(seed: int, count: int, *, with_normals: bool = True) -> Cloud:
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, 3, generator=generator, dtype=torch.float64)
    normals = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    return Cloud(points, normals if with_normals else None)


def slow_way(cloud: Cloud, other: Cloud, threshold: float) -> tuple[list[float], float, float | None]:
    """Distances to the other cloud, the share below the threshold, and the mean |cosine|, by loops."""
    distances, cosines = [], []
    for index, point in enumerate(cloud.points.tolist()):
        each = [math.dist(point, there) for there in other.points.tolist()]
        nearest = each.index(min(each))
        distances.append(each[nearest])
        if cloud.normals is not None and other.normals is not None:
            cosines.append(slow_cosine(cloud.normals[index], other.normals[nearest]))
    known = [cosine for cosine in cosines if cosine is not None]
    near = sum(distance < threshold for distance in distances) / len(distances)
    return distances, near, statistics.fmean(known) if known else None


def slow_cosine(a: Tensor, b: Tensor) -> float | None:
    if not a.any() or not b.any():
        return None
    return abs(float(a @ b)) / (math.hypot(*a.tolist()) * math.hypot(*b.tolist()))


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 1000),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    threshold=st.floats(0.01, 0.5),
    with_normals=st.booleans(),
)
def test_errors_equal_all_distances(seed: int, sizes: tuple[int, int], threshold: float, with_normals: bool) -> None:
    predicted, true = random_cloud(seed, sizes[0]), random_cloud(seed + 1, sizes[1], with_normals=with_normals)
    if predicted.normals is not None:
        predicted.normals[::3] = 0
    got = measure_points(predicted, true, threshold=threshold)
    accuracy, precision, normal_accuracy = slow_way(predicted, true, threshold)
    completeness, recall, normal_completeness = slow_way(true, predicted, threshold)
    assert got.accuracy_mean == pytest.approx(statistics.fmean(accuracy))
    assert got.accuracy_median == pytest.approx(statistics.median(accuracy))
    assert got.completeness_mean == pytest.approx(statistics.fmean(completeness))
    assert got.completeness_median == pytest.approx(statistics.median(completeness))
    assert (got.precision, got.recall) == (pytest.approx(precision), pytest.approx(recall))
    assert got.f1 == pytest.approx(2 * precision * recall / (precision + recall) if precision + recall else 0)
    assert got.normal_accuracy == pytest.approx(normal_accuracy)
    assert got.normal_completeness == pytest.approx(normal_completeness)
    assert (got.num_predicted, got.num_true) == sizes


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), threshold=st.floats(0.01, 0.5))
def test_exchanged_clouds_exchange_accuracy_and_completeness(seed: int, threshold: float) -> None:
    a, b = random_cloud(seed, 30), random_cloud(seed + 1, 50)
    one, other = measure_points(a, b, threshold=threshold), measure_points(b, a, threshold=threshold)
    assert one.f1 == other.f1
    assert (one.precision, one.recall) == (other.recall, other.precision)
    assert (one.accuracy_mean, one.accuracy_median) == (other.completeness_mean, other.completeness_median)
    assert (one.normal_accuracy, one.normal_completeness) == (other.normal_completeness, other.normal_accuracy)
    assert one.normal_consistency == pytest.approx(other.normal_consistency)


def test_equal_clouds_have_no_error() -> None:
    cloud = random_cloud(1, 100)
    errors = measure_points(cloud, cloud, threshold=1e-9)
    assert (errors.accuracy_mean, errors.completeness_mean, errors.accuracy_median) == (0, 0, 0)
    assert (errors.precision, errors.recall, errors.f1) == (1, 1, 1)
    assert errors.normal_consistency == pytest.approx(1)


def test_points_at_the_threshold_are_not_met() -> None:
    predicted, true = Cloud(torch.zeros(1, 3)), Cloud(torch.tensor([[0.0, 0.0, 0.5]]))
    far = measure_points(predicted, true, threshold=0.5)
    assert (far.precision, far.recall, far.f1) == (0, 0, 0)
    assert measure_points(predicted, true, threshold=0.51).f1 == 1


def test_normals_count_neither_their_length_nor_their_side() -> None:
    cloud = random_cloud(2, 50)
    assert cloud.normals is not None
    other = Cloud(cloud.points, cloud.normals * torch.linspace(-3, 3, 50, dtype=torch.float64)[:, None])
    assert measure_points(cloud, other, threshold=0.1).normal_consistency == pytest.approx(1)


def test_unknown_normals_give_no_consistency() -> None:
    cloud = random_cloud(3, 9)
    for other in (random_cloud(4, 9, with_normals=False), Cloud(cloud.points, torch.zeros(9, 3, dtype=torch.float64))):
        errors = measure_points(cloud, other, threshold=0.1)
        assert (errors.normal_accuracy, errors.normal_completeness, errors.normal_consistency) == (None, None, None)


def test_clouds_in_other_places_are_laid_onto_each_other() -> None:
    true = random_cloud(5, 300)
    motion = Similarity(
        torch.tensor(3.0, dtype=torch.float64),
        matrix_from_quaternion(torch.tensor([0.5, 0.1, -0.4, 0.7], dtype=torch.float64)),
        torch.tensor([5.0, 6.0, 7.0], dtype=torch.float64),
    )
    predicted = true.moved(motion.inverse())
    cameras = random_cloud(6, 8).points
    crooked = motion.inverse().of_points(cameras) + 2e-3 * random_cloud(7, 8).points
    start = best_similarity(crooked, cameras)
    rough = predicted.moved(start)
    registration = register(predicted.points, true.points, start, Icp(alignment_mode=AlignmentMode.SIM3))
    fine = predicted.moved(registration.target_from_source)
    assert measure_points(rough, true, threshold=0.1).accuracy_mean > 1e-3
    errors = measure_points(fine, true, threshold=0.1)
    assert errors.accuracy_mean < 1e-9
    assert errors.normal_consistency == pytest.approx(1)
    torch.testing.assert_close(registration.target_from_source.matrix, motion.matrix)


def test_moved_cloud_keeps_unit_normals_and_unknown_ones() -> None:
    cloud = Cloud(torch.ones(2, 3), torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    quarter = matrix_from_quaternion(torch.tensor([1.0, 0.0, 0.0, 1.0]))
    moved = cloud.moved(Similarity(torch.tensor(2.0), quarter, torch.zeros(3)))
    assert moved.normals is not None
    torch.testing.assert_close(moved.normals, torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(moved.points, torch.tensor([[2.0, -2.0, 2.0]] * 2, dtype=torch.float64))
    assert Cloud(cloud.points).moved(Similarity.identity(torch.device("cpu"))).normals is None


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan])
def test_threshold_must_be_positive(threshold: float) -> None:
    cloud = random_cloud(8, 3)
    with pytest.raises(SettingError, match="distance at which points count as met must be positive"):
        measure_points(cloud, cloud, threshold=threshold)


def test_bad_clouds_are_refused() -> None:
    cloud, none = random_cloud(9, 4), Cloud(torch.zeros(0, 3))
    with pytest.raises(InputError, match="Expected 1 or more predicted points, but 0 came"):
        measure_points(none, cloud, threshold=0.1)
    with pytest.raises(InputError, match="Expected 1 or more true points, but 0 came"):
        measure_points(cloud, none, threshold=0.1)
    with pytest.raises(InputError, match="Expected finite true points"):
        measure_points(cloud, Cloud(cloud.points * torch.inf), threshold=0.1)
    with pytest.raises(InputError, match=r"finite normals of the predicted points, .* set unknown ones to zero"):
        measure_points(Cloud(cloud.points, cloud.points * torch.nan), cloud, threshold=0.1)


def test_missing_scipy_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.spatial", None)
    cloud = random_cloud(10, 4)
    with pytest.raises(MissingExtraError, match=r'The measure of points needs scipy.*"longtake\[eval\]"'):
        measure_points(cloud, cloud, threshold=0.1)
