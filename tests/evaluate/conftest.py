"""Walks with a truth and a noisy result, for everything that compares trajectories."""

from collections.abc import Callable

import pytest
import torch

from longtake.evaluate.association import PosePairs
from longtake.spatial.pose import rigid_pose
from longtake.spatial.rotation import matrix_from_quaternion


@pytest.fixture(scope="session")
def make_pairs() -> Callable[..., PosePairs]:
    """Builds a random walk of cameras and a result that strays from it by `noise`."""

    def make(seed: int, *, num_frames: int = 12, noise: float = 0.1) -> PosePairs:
        generator = torch.Generator().manual_seed(seed)
        steps, strays = (torch.randn(num_frames, 7, generator=generator, dtype=torch.float64) for _ in range(2))
        walk = steps.cumsum(dim=0)
        result = walk + noise * strays
        return PosePairs(
            timestamp_s=torch.arange(num_frames, dtype=torch.float64) / 10,
            truth=rigid_pose(matrix_from_quaternion(walk[:, :4]), walk[:, 4:]),
            result=rigid_pose(matrix_from_quaternion(result[:, :4]), result[:, 4:]),
        )

    return make
