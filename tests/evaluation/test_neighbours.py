"""Nearest points against all distances."""

import pytest
import torch

from longtake.errors import InputError
from longtake.evaluation.neighbours import Neighbours, check_cloud


def test_nearest_point_is_the_least_of_all_distances() -> None:
    generator = torch.Generator().manual_seed(1)
    points, queries = torch.randn(60, 3, generator=generator), torch.randn(40, 3, generator=generator)
    distance, index = Neighbours(points).nearest(queries)
    want = torch.cdist(queries.double(), points.double()).min(dim=1)
    torch.testing.assert_close(distance, want.values)
    assert torch.equal(index, want.indices)


def test_clouds_with_too_few_points_or_points_nowhere_are_refused() -> None:
    check_cloud(torch.zeros(2, 3), "true", at_least=2)
    with pytest.raises(InputError, match="Expected 3 or more true points, but 2 came"):
        check_cloud(torch.zeros(2, 3), "true", at_least=3)
    for bad in (torch.nan, torch.inf):
        with pytest.raises(InputError, match="Expected finite predicted points"):
            check_cloud(torch.tensor([[0.0, 0.0, bad]]), "predicted")
