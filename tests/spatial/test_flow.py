"""Flow magnitudes against golden cases and against a slow second version."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from longtake.spatial.flow import mean_flow_px
from longtake.spatial.pose import decode_pose, invert_rigid


@pytest.mark.parametrize("case", range(10))
def test_flow_reproduces_the_golden_case(case: int, golden: Callable[[str], Any]) -> None:
    want = golden("flow")
    depth = want[f"depth_{case}"]
    camera, other = (decode_pose(want[f"{name}_pose_{case}"], 42, 70) for name in ("cur", "kf"))
    got = mean_flow_px(depth, camera, other, stride=int(want[f"stride_{case}"]))
    expected = float(want["flow_mag"][case])
    assert abs(float(got) - expected) <= 2e-5 * (1 + abs(expected))


def slow_flow(depth: Tensor, camera: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], stride: int) -> float:
    moves = []
    for v in range(0, depth.shape[0], stride):
        for u in range(0, depth.shape[1], stride):
            if depth[v, u] <= 1e-6:
                continue
            ray = torch.linalg.inv(camera[1]) @ torch.tensor([u, v, 1.0], dtype=depth.dtype)
            world = camera[0] @ torch.cat([ray * depth[v, u], torch.ones(1, dtype=depth.dtype)])
            seen = (invert_rigid(other[0]) @ world)[:3]
            if seen[2] <= 1e-6:
                continue
            pixel = other[1] @ (seen / seen[2])
            moves.append(math.hypot(float(pixel[0]) - u, float(pixel[1]) - v))
    return sum(moves) / len(moves) if moves else 0.0


def test_flow_equals_the_slow_second_version() -> None:
    generator = torch.Generator().manual_seed(3)
    for _ in range(5):
        encodings = torch.rand(2, 9, generator=generator, dtype=torch.float64)
        camera, other = (decode_pose(encoding, 20, 30) for encoding in encodings)
        depth = torch.rand(20, 30, generator=generator, dtype=torch.float64) * 4 - 0.5
        got = float(mean_flow_px(depth, camera, other, stride=3))
        assert got == pytest.approx(slow_flow(depth, camera, other, 3), rel=1e-9)
