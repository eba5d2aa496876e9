import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtake.errors import SettingError
from longtake.spatial.voxel_set import VoxelSet


def scattered(seed: int, count: int = 500, reach: float = 3.0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-reach, reach, (count, 3))


@given(st.integers(0, 1000), st.sampled_from([0.1, 0.7, 2.0]))
def test_the_first_point_of_each_new_voxel_is_chosen_in_the_order_given(seed: int, voxel: float) -> None:
    found, met = VoxelSet(voxel, most=10_000), set()
    for part in np.split(scattered(seed, 400), 4):
        expected = []
        for place, point in enumerate(part):
            key = tuple(np.floor(point / voxel).astype(int))
            if key not in met:
                met.add(key)
                expected.append(place)
        new = found.firsts(part)
        assert new.tolist() == expected
        found.add(part[new])
    assert len(found) == len(met)


def test_what_was_not_added_is_new_the_next_time_too() -> None:
    found, points = VoxelSet(0.1, most=1000), scattered(1)
    new = found.firsts(points)
    found.add(points[new[:10]])
    assert set(found.firsts(points)) == set(new[10:])


def test_voxels_widen_when_there_are_too_many_and_what_was_met_stays_so() -> None:
    found = VoxelSet(0.05, most=300)
    for seed in range(20):
        points = scattered(seed)
        found.add(points[found.firsts(points)])
        assert len(found) <= 300
    assert found.voxel > 0.05
    assert not len(found.firsts(scattered(19)))


def test_points_out_of_reach_or_not_finite_are_none() -> None:
    points = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [1e9, 0, 0], [-1e9, 0, 0], [0.5, 0.5, 0.5]])
    assert VoxelSet(0.1, most=10).firsts(points).tolist() == [4]


@pytest.mark.parametrize(("voxel", "most"), [(0.0, 1), (-1.0, 1), (float("nan"), 1), (float("inf"), 1), (1.0, 0)])
def test_sizes_that_mean_nothing_are_refused(voxel: float, most: int) -> None:
    with pytest.raises(SettingError):
        VoxelSet(voxel, most=most)
