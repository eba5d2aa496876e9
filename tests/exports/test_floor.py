import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.exports.floor import Floor, Surfaces, find_floor


@settings(deadline=None, max_examples=50)
@given(st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda v: math.hypot(*v) > 0.1), st.floats(-5, 5))
def test_any_floor_comes_to_zero_and_its_normal_up(direction: tuple[float, float, float], offset: float) -> None:
    normal = torch.nn.functional.normalize(torch.tensor(direction, dtype=torch.float64), dim=0)
    upright = Floor(normal=normal, offset=offset, share=0.5).upright_from_world()
    assert torch.allclose(upright.rotation @ upright.rotation.T, torch.eye(3, dtype=torch.float64), atol=1e-9)
    assert float(torch.linalg.det(upright.rotation)) == pytest.approx(1)
    assert torch.allclose(upright.rotation @ normal, torch.tensor([0.0, -1, 0], dtype=torch.float64), atol=1e-6)
    assert float(upright.of_points(offset * normal)[1]) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("down", [[0.0, 1, 0], [0.0, -1, 0]])
def test_a_level_floor_and_one_upside_down_are_turned_too(down: list[float]) -> None:
    normal = -torch.tensor(down, dtype=torch.float64)
    upright = Floor(normal=normal, offset=1.0, share=0.5).upright_from_world()
    assert torch.allclose(upright.rotation @ normal, torch.tensor([0.0, -1, 0], dtype=torch.float64), atol=1e-9)
    assert float(torch.linalg.det(upright.rotation)) == pytest.approx(1)


def plates(*heights_and_counts: tuple[float, int]) -> Surfaces:
    """Level squares at some heights, so many points each; five cameras 1.5 above zero."""
    rng = np.random.default_rng(0)
    parts = [
        np.stack([rng.uniform(-2, 2, count), np.full(count, -height), rng.uniform(-2, 2, count)], axis=1)
        for height, count in heights_and_counts
    ]
    points = torch.from_numpy(np.concatenate(parts))
    cameras = torch.eye(4, dtype=torch.float64).repeat(5, 1, 1)
    cameras[:, 1, 3] = -1.5
    up = torch.tensor([0.0, -1, 0], dtype=torch.float64)
    return Surfaces(
        points=points,
        normals=up.expand(len(points), 3),
        areas=torch.ones(len(points), dtype=torch.float64),
        depth=2.0,
        world_from_camera=cameras,
    )


def test_the_lowest_of_the_large_surfaces_is_the_floor() -> None:
    floor = find_floor(plates((0.0, 400), (0.75, 900), (-0.6, 40)))
    assert floor is not None
    assert floor.offset == pytest.approx(0, abs=1e-9)
    assert floor.share == pytest.approx(400 / 1340)


def test_a_surface_above_the_cameras_is_no_floor() -> None:
    assert find_floor(plates((2.5, 900))) is None


def test_a_surface_with_much_below_it_is_no_floor() -> None:
    assert find_floor(plates((0.0, 900), *[(-0.5 - 0.3 * layer, 80) for layer in range(5)])) is None


def test_points_on_a_line_are_no_floor() -> None:
    line = plates((0.0, 900))
    line.points[:, 0] = 0
    assert find_floor(line) is None
