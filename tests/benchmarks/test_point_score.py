"""Points against points without a k-d tree: the same as one would say, and the similarity that lays pixels true."""

import numpy as np
import pytest
import torch

from benchmarks.point_score import PointScore, in_metres, met, score, thinned
from longtake.spatial.similarity import Similarity


def cloud(seed: int, count: int = 400) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.4, 0.4, size=(count, 3))


def test_a_point_is_met_where_one_is_nearer_than_the_threshold() -> None:
    ours, theirs = cloud(0), cloud(1)
    apart = np.linalg.norm(ours[:, None] - theirs[None], axis=2).min(axis=1)
    np.testing.assert_array_equal(met(ours, theirs), apart < 0.05)
    assert met(ours, ours).all()


def test_precision_and_recall_are_of_each_side() -> None:
    true = cloud(0)
    found = np.concatenate([true[:100], true[:100] + 5.0])
    scored = score(found, true)
    assert scored.precision == 0.5
    assert scored.recall == pytest.approx(met(true, true[:100]).mean())
    assert PointScore(0.5, 0.25).f1 == pytest.approx(1 / 3)
    assert PointScore(0.0, 0.0).f1 == 0.0


def test_one_point_is_left_in_each_small_cube_and_none_that_is_unknown() -> None:
    points = np.array([[0.001, 0.001, 0.001], [0.002, 0.003, 0.004], [0.5, 0.5, 0.5], [np.nan, 0.0, 0.0]])
    assert len(thinned([points[:2], points[2:]])) == 2


def test_pixels_are_laid_by_the_similarity_that_most_of_them_agree_on() -> None:
    true = [cloud(seed) for seed in range(3)]
    turn = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    move = Similarity(torch.tensor(0.3, dtype=torch.float64), turn, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    found = [move.of_points(torch.from_numpy(one)).numpy() for one in true]
    found[0][:40] += 0.1  # a tenth of a frame that lies elsewhere
    found[1][0] = np.nan
    laid = in_metres(found, true)
    np.testing.assert_allclose(laid[2], true[2], atol=1e-9)
    assert np.isnan(laid[1][0]).all()
