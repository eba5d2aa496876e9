"""The best similarity against Horn's quaternion method, against its neighbours, and where points say too little."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.spatial.pose import matrix_from_quaternion
from longtake.spatial.similarity import Similarity, best_similarity

seeds = st.integers(0, 10_000)


def random_points(seed: int, num_points: int = 12) -> Tensor:
    return torch.randn(num_points, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_similarity(seed: int) -> Similarity:
    numbers = torch.randn(8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Similarity(numbers[0].exp(), matrix_from_quaternion(numbers[1:5]), 10 * numbers[5:])


def squared_distance(moved: Similarity, source: Tensor, target: Tensor) -> float:
    return float((moved.of_points(source) - target).square().sum())


def best_by_horn(source: Tensor, target: Tensor, *, with_scale: bool) -> Similarity:
    """The unit quaternion as the eigenvector of a 4×4 matrix built point by point (Horn, JOSA 1987)."""
    source_mean, target_mean = source.mean(dim=0), target.mean(dim=0)
    matrix = torch.zeros(4, 4, dtype=torch.float64)
    for a, b in zip(source - source_mean, target - target_mean, strict=True):
        left = torch.tensor(
            [[0, -a[0], -a[1], -a[2]], [a[0], 0, a[2], -a[1]], [a[1], -a[2], 0, a[0]], [a[2], a[1], -a[0], 0]]
        )
        right = torch.tensor(
            [[0, -b[0], -b[1], -b[2]], [b[0], 0, -b[2], b[1]], [b[1], b[2], 0, -b[0]], [b[2], -b[1], b[0], 0]]
        )
        matrix += left.double().T @ right.double()
    w, x, y, z = torch.linalg.eigh(matrix).eigenvectors[:, -1]
    rotation = matrix_from_quaternion(torch.stack([x, y, z, w]))
    turned = (source - source_mean) @ rotation.T
    scale = torch.ones((), dtype=torch.float64)
    if with_scale:
        scale = (turned * (target - target_mean)).sum() / turned.square().sum()
    return Similarity(scale, rotation, target_mean - scale * rotation @ source_mean)


@given(seeds, st.booleans(), st.sampled_from([1.0, -1.0]), st.sampled_from([3, 4, 12]))
@settings(deadline=None, max_examples=60)
def test_best_similarity_is_that_of_horn_for_noisy_and_for_mirrored_points(
    seed: int, with_scale: bool, mirror: float, num_points: int
) -> None:
    source = random_points(seed, num_points)
    target = random_similarity(seed).of_points(source * torch.tensor([1, 1, mirror]).double())
    target = target + 0.3 * random_points(seed + 1, num_points)
    best, horn = (fit(source, target, with_scale=with_scale) for fit in (best_similarity, best_by_horn))
    torch.testing.assert_close(
        squared_distance(best, source, target), squared_distance(horn, source, target), rtol=1e-9, atol=1e-12
    )
    torch.testing.assert_close(torch.linalg.det(best.rotation), torch.ones((), dtype=torch.float64))


@given(seeds, st.booleans())
@settings(deadline=None, max_examples=30)
def test_no_similarity_nearby_is_better(seed: int, with_scale: bool) -> None:
    source, target = random_points(seed), random_points(seed + 1)
    best = best_similarity(source, target, with_scale=with_scale)
    least = squared_distance(best, source, target)
    for step in 1e-3 * torch.randn(50, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64):
        turn = matrix_from_quaternion(torch.cat([step[:3], torch.ones(1).double()]))
        scale = best.scale * step[3].exp() if with_scale else best.scale
        nearby = Similarity(scale, turn @ best.rotation, best.translation + step[4:])
        assert squared_distance(nearby, source, target) >= least


@pytest.mark.parametrize("seed", range(5))
def test_known_similarity_is_found_far_from_the_origin_too(seed: int) -> None:
    known, source = random_similarity(seed), random_points(seed)
    found = best_similarity(source, known.of_points(source))
    torch.testing.assert_close(found.matrix, known.matrix)
    far = source + 1e5
    torch.testing.assert_close(best_similarity(far, known.of_points(far)).of_points(far), known.of_points(far))


def test_without_scale_the_motion_is_rigid() -> None:
    source = random_points(0)
    found = best_similarity(source, 3 * random_similarity(1).of_points(source), with_scale=False)
    assert found.scale == 1


def test_points_in_a_plane_are_not_mirrored() -> None:
    source = random_points(3) * torch.tensor([1, 1, 0]).double()
    known = random_similarity(4)
    torch.testing.assert_close(best_similarity(source, known.of_points(source)).matrix, known.matrix)


@pytest.mark.parametrize("num_points", [2, 7])
def test_points_on_a_line_are_met_by_a_proper_rotation(num_points: int) -> None:
    source = torch.linspace(-1, 2, num_points).double()[:, None] * torch.tensor([1, 2, 3]).double() + 5
    target = random_similarity(6).of_points(source)
    found = best_similarity(source, target)
    torch.testing.assert_close(found.of_points(source), target)
    torch.testing.assert_close(torch.linalg.det(found.rotation), torch.ones((), dtype=torch.float64))


@pytest.mark.parametrize("num_points", [1, 4, 7, 1001])
@pytest.mark.parametrize("coincident", ["source", "target", "both"])
def test_coincident_points_are_only_translated(num_points: int, coincident: str) -> None:
    source, target = random_points(7, num_points), random_points(8, num_points)
    source = source[:1].expand(num_points, 3) / 3 if coincident != "target" else source
    target = target[:1].expand(num_points, 3) / 3 if coincident != "source" else target
    found = best_similarity(source, target)
    assert found.scale == 1
    assert torch.equal(found.rotation, torch.eye(3).double())
    torch.testing.assert_close(found.translation, target.mean(dim=0) - source.mean(dim=0))


def test_uncorrelated_points_are_only_translated() -> None:
    x = torch.tensor([1, 0, 0]).double()
    found = best_similarity(torch.stack([x, -x, x, -x]), torch.stack([x, x, -x, -x]) + 1)
    torch.testing.assert_close(found.matrix[:3], torch.eye(4).double()[:3] + torch.tensor([0, 0, 0, 1.0]))


def test_single_precision_stays_single_precision() -> None:
    source = random_points(0).float()
    found = best_similarity(source, 2 * source)
    assert found.matrix.dtype == torch.float32
    torch.testing.assert_close(found.matrix, torch.diag(torch.tensor([2.0, 2, 2, 1])), atol=1e-6, rtol=0)
