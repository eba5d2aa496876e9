"""The nearest point of a cloud, by a k-d tree."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longtake.errors import InputError
from longtake.extras import import_from_extra


class Neighbours:
    """A cloud that answers which of its points is nearest."""

    def __init__(self, points: Float[Tensor, "points 3"]) -> None:
        spatial = import_from_extra("scipy.spatial", "eval", "The measure of points")
        self._tree = spatial.cKDTree(points.detach().double().cpu().numpy())

    def nearest(self, queries: Float[Tensor, "queries 3"]) -> tuple[Float[Tensor, " queries"], Int[Tensor, " queries"]]:
        """How far the nearest point is, and its index."""
        distance, index = self._tree.query(queries.detach().double().cpu().numpy(), workers=-1)
        return torch.from_numpy(distance), torch.from_numpy(index)


def check_cloud(points: Float[Tensor, "points 3"], name: str, *, at_least: int = 1) -> None:
    """Refuse a cloud that has too few points, or some that are nowhere."""
    if len(points) < at_least:
        raise InputError(f"Expected {at_least} or more {name} points, but {len(points)} came.")
    if not points.isfinite().all():
        raise InputError(f"Expected finite {name} points, but some are not; leave those out.")
