"""The cloud against a dictionary of voxels; bounded, and the same in any order."""

import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import SettingError
from longtake.exports.cloud import LARGEST_CONFIDENCE, Cloud, CloudSettings, GrowingCloud
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.point_filter import PointFilter

ALL_PIXELS = PointFilter(drop_percent=0.0, largest_jump=None)


def cloud_of(frames: list[MappedFrame], chosen: CloudSettings) -> Cloud:
    growing = GrowingCloud(chosen)
    for frame in frames:
        growing.add(frame)
    return growing.cloud()


def points_of(frame: MappedFrame) -> list[list[float]]:
    """Pixel by pixel."""
    (fx, _, cx), (_, fy, cy), _ = frame.intrinsics.tolist()
    pose = frame.world_from_camera.numpy()
    points = []
    for (v, u), z in np.ndenumerate(frame.depth.astype(np.float64)):
        points.append((pose[:3, :3] @ [(u - cx) / fx * z, (v - cy) / fy * z, z] + pose[:3, 3]).tolist())
    return points


def test_cloud_is_the_mean_of_what_fell_into_each_voxel(frames: list[MappedFrame]) -> None:
    boxes: dict[tuple[int, ...], list[list[float]]] = defaultdict(list)
    for frame in frames[:2]:
        confidence, colours = frame.confidence.ravel().tolist(), frame.image.reshape(-1, 3).tolist()
        for point, colour, sure in zip(points_of(frame), colours, confidence, strict=True):
            boxes[tuple(math.floor(axis / 0.2) for axis in point)].append([*point, *colour, sure])
    want = np.array([np.mean(box, axis=0) for _, box in sorted(boxes.items())])
    got = cloud_of(frames[:2], CloudSettings(points=ALL_PIXELS, voxel=0.2))
    assert got.voxel == 0.2
    np.testing.assert_allclose(got.points, want[:, :3], rtol=0, atol=1e-6)
    np.testing.assert_allclose(got.colours, want[:, 3:6], rtol=0, atol=0.501)
    np.testing.assert_allclose(got.confidence, want[:, 6], rtol=0, atol=1e-4)


@settings(deadline=None, max_examples=15)
@given(order=st.permutations(range(10)), max_points=st.integers(50, 3000))
def test_cloud_is_bounded_and_the_same_in_any_order(
    frames: list[MappedFrame], order: list[int], max_points: int
) -> None:
    bounded = CloudSettings(points=ALL_PIXELS, voxel=0.01, max_points=max_points)
    cloud = cloud_of(frames, bounded)
    other = cloud_of([frames[place] for place in order], bounded)
    assert len(cloud.points) <= max_points
    for name in ("points", "normals", "colours", "confidence"):
        assert np.array_equal(getattr(cloud, name), getattr(other, name))
    assert cloud.voxel == other.voxel is not None
    assert math.log2(cloud.voxel / 0.01).is_integer()
    finer = cloud_of(frames, CloudSettings(points=ALL_PIXELS, voxel=cloud.voxel / 2, max_points=10**6))
    assert len(finer.points) > max_points


@pytest.mark.parametrize("num_ahead", [2, 5])
def test_points_found_ahead_of_their_turn_make_the_same_cloud(frames: list[MappedFrame], num_ahead: int) -> None:
    """As threads do it; the first ones before a voxel has a width, some before voxels became wider."""
    chosen = CloudSettings(max_points=400)
    one_by_one = GrowingCloud(chosen)
    for frame in frames:
        one_by_one.add(frame)
    ahead = GrowingCloud(chosen)
    found = [ahead.points_of(frame) for frame in frames[:num_ahead]]
    for later in (*frames[num_ahead:], *[None] * num_ahead):
        ahead.add_points(found.pop(0))
        if later is not None:
            found.append(ahead.points_of(later))
    assert ahead.state().values == one_by_one.state().values
    for name, array in one_by_one.state().arrays.items():
        assert np.array_equal(ahead.state().arrays[name], array)


def test_first_voxel_is_as_wide_as_a_pixel_of_the_first_frame_with_points(frames: list[MappedFrame]) -> None:
    blind = replace(frames[0], depth=np.zeros_like(frames[0].depth))
    cloud = cloud_of([blind, *frames[1:3]], CloudSettings(points=ALL_PIXELS))
    width = np.median(frames[1].depth) / float(frames[1].intrinsics[0, 0])
    assert cloud.voxel == pytest.approx(width, rel=1e-6)


def test_cloud_without_points_is_empty(frames: list[MappedFrame]) -> None:
    cut = replace(frames[0], status=FrameStatus.CUT)
    cloud = cloud_of([cut], CloudSettings())
    assert len(cloud.points) == len(cloud.normals) == len(cloud.colours) == len(cloud.confidence) == 0
    assert cloud.voxel is None


def test_points_out_of_reach_are_left_out_and_counted(frames: list[MappedFrame]) -> None:
    depth = frames[0].depth.copy()
    depth[3, :7] = 1e9
    growing = GrowingCloud(CloudSettings(points=ALL_PIXELS))
    growing.add(replace(frames[0], depth=depth))
    assert growing.num_out_of_reach == 7
    assert np.isfinite(growing.cloud().points).all()
    assert np.abs(growing.cloud().points).max() < 100


def test_confidence_is_limited_but_never_lost(frames: list[MappedFrame]) -> None:
    confidence = np.full(frames[0].confidence.shape, 1e30, np.float32)
    confidence[:, :3] = np.inf
    cloud = cloud_of([replace(frames[0], confidence=confidence)], CloudSettings(points=ALL_PIXELS))
    assert (cloud.confidence == LARGEST_CONFIDENCE).all()
    assert len(cloud.points) > 1000


def test_frames_that_gave_points_are_counted(frames: list[MappedFrame]) -> None:
    growing = GrowingCloud(CloudSettings(points=PointFilter(every=4)))
    for frame in frames:
        growing.add(frame)
    assert growing.num_frames == 3
    assert GrowingCloud(CloudSettings(), state=growing.state()).num_frames == 3


@pytest.mark.parametrize("voxel", [0.0, -1.0, math.nan, math.inf])
def test_voxels_must_have_a_size(voxel: float) -> None:
    with pytest.raises(SettingError, match="edge of a voxel must be a positive length"):
        CloudSettings(voxel=voxel)


def test_cloud_must_hold_a_point() -> None:
    with pytest.raises(SettingError, match="Expected a cloud of 1 point or more, not of 0"):
        CloudSettings(max_points=0)
