"""Thinning by voxel: against a dictionary of voxels, in any order and any pieces."""

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from broken import Break
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.spatial import voxels
from longtake.spatial.voxels import VoxelGrid


def thin_by_voxel(points: Tensor, voxel: float) -> Tensor:
    """One point for each voxel that has any."""
    grid = VoxelGrid(voxel)
    grid.add(points)
    return grid.points.to(points)


def make_points(seed: int, count: int, spread: float = 2.0) -> Tensor:
    return spread * torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow_thin(points: Tensor, voxel: float) -> list[list[float]]:
    boxes: dict[tuple[int, ...], list[list[float]]] = defaultdict(list)
    for point in points.tolist():
        boxes[tuple(math.floor(axis / voxel) for axis in point)].append(point)
    return [[sum(axis) / len(box) for axis in zip(*box, strict=True)] for _, box in sorted(boxes.items())]


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), count=st.integers(1, 200), voxel=st.floats(0.05, 5))
def test_thinned_cloud_is_the_mean_of_each_voxel(seed: int, count: int, voxel: float) -> None:
    points = make_points(seed, count)
    torch.testing.assert_close(
        thin_by_voxel(points, voxel), torch.tensor(slow_thin(points, voxel), dtype=torch.float64), rtol=0, atol=2e-8
    )


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_any_order_and_any_pieces_give_the_very_same_cloud(seed: int, sizes: list[int]) -> None:
    points = make_points(seed, sum(sizes))
    colours = torch.rand(len(points), 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    whole, pieces = VoxelGrid(0.7, num_attributes=4), VoxelGrid(0.7, num_attributes=4)
    whole.add(points, colours)
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed + 1))
    for some, some_colours in zip(points[order].split(sizes), colours[order].split(sizes), strict=True):
        pieces.add(some, some_colours)
    assert torch.equal(whole.points, pieces.points)
    assert torch.equal(whole.attributes, pieces.attributes)
    assert torch.equal(whole.counts, pieces.counts)
    assert int(whole.counts.sum()) == len(points)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 1000), sizes=st.lists(st.integers(0, 60), min_size=2, max_size=6), doublings=st.integers(1, 4)
)
def test_coarsened_grid_is_that_of_wider_voxels_whenever_it_is_coarsened(
    seed: int, sizes: list[int], doublings: int
) -> None:
    points = make_points(seed, sum(sizes))
    colours = torch.rand(len(points), 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    early, late, wide = (VoxelGrid(edge, num_attributes=2, fraction_bits=20) for edge in (0.3, 0.3, 0.3 * 2**doublings))
    for place, (some, some_colours) in enumerate(zip(points.split(sizes), colours.split(sizes), strict=True)):
        for grid in (early, late, wide):
            grid.add(some, some_colours)
        if place < doublings:
            early.coarsen()
    for grid, missing in ((early, max(0, doublings - len(sizes))), (late, doublings)):
        for _ in range(missing):
            grid.coarsen()
    assert torch.equal(early.points, late.points)
    assert torch.equal(early.attributes, late.attributes)
    assert torch.equal(early.counts, wide.counts)
    assert early.voxel == wide.voxel
    torch.testing.assert_close(early.points, wide.points, rtol=0, atol=1e-5)
    torch.testing.assert_close(early.attributes, wide.attributes, rtol=0, atol=0)


def test_points_summed_before_voxels_became_wider_count_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    first, later = (torch.randn(500, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    ahead, plain = VoxelGrid(0.05), VoxelGrid(0.05)
    ahead.add(first)
    summed = ahead.summed(later)
    for _ in range(3):
        ahead.coarsen()
    ahead.merge(summed)
    plain.add(first)
    plain.add(later)
    for _ in range(3):
        plain.coarsen()
    assert np.array_equal(ahead.content.keys, plain.content.keys)
    assert np.array_equal(ahead.content.sums, plain.content.sums)


def test_grid_put_away_and_taken_up_again_goes_on_as_if_nothing_was() -> None:
    points = make_points(5, 400)
    whole, first = VoxelGrid(0.2, num_attributes=3), VoxelGrid(0.2, num_attributes=3)
    whole.add(points, points)
    whole.coarsen()
    first.add(points[:150], points[:150])
    first.coarsen()
    content = first.content
    first.add(points[150:], points[150:])
    again = VoxelGrid(0.2, num_attributes=3, content=content)
    again.add(points[150:], points[150:])
    for grid in (first, again):
        assert torch.equal(grid.points, whole.points)
        assert torch.equal(grid.attributes, whole.attributes)
        assert torch.equal(grid.counts, whole.counts)


@pytest.mark.parametrize("most_recent", [0, 40, 10_000])
def test_grid_is_the_same_however_often_its_index_is_settled(monkeypatch: pytest.MonkeyPatch, most_recent: int) -> None:
    """Against a dictionary of voxels, a point at a time; widened now and then in between."""
    monkeypatch.setattr(voxels, "_MOST_RECENT", most_recent)
    grid, wide = VoxelGrid(0.5, num_attributes=3), VoxelGrid(1.0, num_attributes=3)
    points = torch.cat([make_points(seed, 200) for seed in range(30)])
    for some in points.split(200):
        grid.add(some, some)
        wide.add(some, some)
    boxes: dict[tuple[int, ...], list[list[float]]] = defaultdict(list)
    for point in points.tolist():
        boxes[tuple(math.floor(axis / 0.5) for axis in point)].append(point)
    ordered = [box for _, box in sorted(boxes.items())]
    assert len(grid) == len(ordered)
    assert grid.counts.tolist() == [len(box) for box in ordered]
    means = torch.tensor([[sum(axis) / len(box) for axis in zip(*box, strict=True)] for box in ordered])
    torch.testing.assert_close(grid.points, means.double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(grid.attributes, means.double(), rtol=0, atol=1e-6)
    grid.coarsen()
    assert torch.equal(grid.counts, wide.counts)
    assert np.array_equal(grid.content.keys, wide.content.keys)


def test_grid_grows_with_space_not_with_points() -> None:
    grid = VoxelGrid(1.0)
    for seed in range(20):
        grid.add(torch.rand(500, 3, generator=torch.Generator().manual_seed(seed)) * 2)
    assert len(grid) == 8
    assert grid.counts.sum() == 10_000
    torch.testing.assert_close(grid.points.mean(dim=0), torch.ones(3, dtype=torch.float64), rtol=0.05, atol=0)


def test_attributes_are_averaged_with_their_points() -> None:
    grid = VoxelGrid(1.0, num_attributes=3)
    grid.add(torch.tensor([[0.2, 0.2, 0.2], [5.0, 0.0, 0.0]]), torch.tensor([[255.0, 0.0, -1.0], [7.0, 8.0, 9.0]]))
    grid.add(torch.tensor([[0.8, 0.6, 0.4]]), torch.tensor([[0.0, 100.0, 1.0]]))
    assert grid.attributes.tolist() == [[127.5, 50.0, 0.0], [7.0, 8.0, 9.0]]
    torch.testing.assert_close(grid.points[0], torch.tensor([0.5, 0.4, 0.3], dtype=torch.float64))
    assert grid.counts.tolist() == [2, 1]


def test_thinning_keeps_the_type_and_thinned_points_stay() -> None:
    points = make_points(1, 300).float()
    thinned = thin_by_voxel(points, 0.5)
    assert thinned.dtype is torch.float32
    torch.testing.assert_close(thin_by_voxel(thinned, 0.5), thinned, rtol=0, atol=1e-6)
    assert len(thin_by_voxel(points[:0], 0.5)) == 0


def test_negative_places_have_voxels_of_their_own() -> None:
    thinned = thin_by_voxel(torch.tensor([[-0.1, 0.0, 0.0], [0.1, 0.0, 0.0]]), 1.0)
    torch.testing.assert_close(thinned, torch.tensor([[-0.1, 0.0, 0.0], [0.1, 0.0, 0.0]]))


def test_grid_reaches_a_million_voxels_each_way_and_no_farther() -> None:
    corners = torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]], dtype=torch.float64) * (2**20 - 0.5)
    torch.testing.assert_close(thin_by_voxel(corners, 1.0), corners)
    with pytest.raises(InputError, match=r"up to 1.05e\+06 voxels from the origin, .* 1048576; choose larger voxels"):
        thin_by_voxel(torch.tensor([[0.0, -(2.0**20), 0.0]]), 1.0)


@pytest.mark.parametrize("voxel", [0.0, -1.0, math.nan, math.inf])
def test_voxels_must_have_a_size(voxel: float) -> None:
    with pytest.raises(SettingError, match="edge of a voxel must be a positive length"):
        VoxelGrid(voxel)


def test_bad_points_and_attributes_are_refused_and_leave_no_trace() -> None:
    grid = VoxelGrid(1.0, num_attributes=1)
    for bad in (torch.nan, torch.inf):
        with pytest.raises(InputError, match="Expected finite points"):
            grid.add(torch.tensor([[0.0, bad, 0.0]]), torch.ones(1, 1))
    for bad in (torch.nan, 257.0, -torch.inf):
        with pytest.raises(InputError, match="finite and within ±256"):
            grid.add(torch.zeros(1, 3), torch.tensor([[bad]]))
    with pytest.raises(InputError, match=r"Expected 1 attributes with each point, .* but 0 came"):
        grid.add(torch.zeros(1, 3))
    with pytest.raises(InputError, match="but 2 came"):
        grid.add(torch.zeros(1, 3), torch.ones(1, 2))
    assert len(grid) == 0


def test_a_grid_that_was_broken_off_at_any_line_can_still_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C may do, after which the cloud is written all the same."""
    monkeypatch.setattr(voxels, "_MOST_RECENT", 40)
    before, more = make_points(1, 100), make_points(2, 100)

    def change(grid: VoxelGrid) -> None:
        grid.add(more)
        grid.coarsen()

    counted = Break(None, ("spatial",))
    grid = grid_of(before)
    counted.during(lambda: change(grid))
    assert len(counted.lines) > 50
    for number in range(1, len(counted.lines) + 1):
        grid, breaking = grid_of(before), Break(number, ("spatial",))
        breaking.during(lambda grid=grid: change(grid))
        assert breaking.at != "nowhere"
        assert len(grid.points) == len(grid.counts) == len(grid), breaking.at
        assert int(grid.counts.min()) > 0, breaking.at
        assert 100 <= int(grid.counts.sum()) <= 200, breaking.at


def grid_of(points: Tensor) -> VoxelGrid:
    grid = VoxelGrid(0.7)
    grid.add(points)
    return grid


def test_content_that_was_given_away_stays_while_its_table_grows() -> None:
    grid, points = VoxelGrid(0.01), make_points(3, 4000)
    grid.add(points[:100])
    content, mean_points = grid.content, grid.points
    before = content.keys.copy(), content.sums.copy(), mean_points.clone()
    taken_up = VoxelGrid(0.01, content=content)
    for some in (*points[100:].split(300), points):
        grid.add(some)
        taken_up.add(some)
    grid.coarsen()
    grid.add(points)
    np.testing.assert_array_equal(content.keys, before[0])
    np.testing.assert_array_equal(content.sums, before[1])
    torch.testing.assert_close(mean_points, before[2], rtol=0, atol=0)
    taken_up.coarsen()
    taken_up.add(points)
    np.testing.assert_array_equal(grid.content.sums, taken_up.content.sums)
