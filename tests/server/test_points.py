"""Points as viewers read them are where the depth says, and any first part of them is a fair sample."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from shown import Shown, mapped_frame

import longtake
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.point_filter import PointFilter
from longtake.server.point_history import PlacedChunk
from longtake.server.points import MOST_POINTS, ROW, PointChunk, PointMaker, confidence_bytes
from longtake.server.take_points import chunks_of_take
from longtake.server.viewer import points_message
from longtake.spatial.pinhole import unproject
from longtake.types import Tracking, TrackingReason, TrackingState

POSED = {"centre": (1.0, -2.0, 0.5), "turn_rad": 0.7}


def made(frame: MappedFrame, maker: PointMaker | None = None) -> PointChunk:
    chunk = (maker or PointMaker()).chunk(frame)
    assert chunk is not None
    return chunk


def pixels_of(chunk: PointChunk, frame: MappedFrame) -> np.ndarray:
    """Where in the picture the points are, as (x, y)."""
    projected = chunk.positions @ frame.intrinsics.numpy().T
    return projected[:, :2] / projected[:, 2:]


@pytest.mark.parametrize("size", [(98, 126), (378, 504)])
@pytest.mark.parametrize("depth", [0.02, 2.0, 900.0])
def test_a_point_projects_within_half_a_pixel_of_where_it_came_from(size: tuple[int, int], depth: float) -> None:
    frame = mapped_frame(3, size=size, depth=depth, wave=0.8)
    chunk = made(frame)
    nearest = np.rint(pixels_of(chunk, frame)).astype(int)
    kept = PointFilter().kept(frame)
    assert kept[nearest[:, 1], nearest[:, 0]].all()
    assert (frame.image[nearest[:, 1], nearest[:, 0]] == chunk.rows["colour"]).all(), (
        "each pixel has a colour of its own"
    )
    expected = confidence_bytes(frame.confidence[nearest[:, 1], nearest[:, 0]])
    assert (expected == chunk.rows["confidence"]).all()


def test_with_the_pose_a_point_is_within_a_step_of_the_depths_point_in_the_world() -> None:
    frame = mapped_frame(3, **POSED)
    chunk = made(frame)
    pixels = np.rint(pixels_of(chunk, frame)).astype(int)
    truth = unproject(torch.from_numpy(frame.depth).double(), frame.intrinsics, frame.world_from_camera).numpy()
    pose = frame.world_from_camera.numpy()
    world = chunk.positions @ pose[:3, :3].T + pose[:3, 3]
    assert np.linalg.norm(world - truth[pixels[:, 1], pixels[:, 0]], axis=1).max() <= chunk.scale


def test_a_near_thing_before_a_far_view_is_told_apart_to_half_a_pixel() -> None:
    depth = np.full((98, 126), 2000.0, np.float32)
    depth[30:60, 30:60] = 0.5
    frame = replace(mapped_frame(), depth=depth)
    chunk = made(frame, PointMaker(PointFilter(drop_percent=0.0)))
    nearest = np.rint(pixels_of(chunk, frame)).astype(int)
    assert (frame.image[nearest[:, 1], nearest[:, 0]] == chunk.rows["colour"]).all()
    assert (chunk.positions[:, 2] < 1).all()


def test_any_first_part_is_a_fair_sample() -> None:
    frame = mapped_frame(2, size=(378, 504))
    chunk = made(frame)
    assert len(chunk) == MOST_POINTS
    pixels = pixels_of(chunk, frame)
    for count in (200, 1000):
        for axis, length in enumerate((504, 378)):
            shares = np.histogram(pixels[:count, axis], 4, (0, length))[0] / count
            whole = np.histogram(pixels[:, axis], 4, (0, length))[0] / len(pixels)
            assert np.abs(shares - whole).max() < 0.12


def test_the_same_frame_gives_the_same_bytes() -> None:
    assert made(mapped_frame(4)).rows.tobytes() == made(mapped_frame(4)).rows.tobytes()


def test_what_was_sent_before_is_left_out_and_what_did_not_fit_comes_later() -> None:
    maker, counts = PointMaker(), []
    for _ in range(6):
        chunk = maker.chunk(mapped_frame(0))
        counts.append(0 if chunk is None else len(chunk))
    assert counts[0] == MOST_POINTS
    assert counts[1] > 0
    assert counts[-1] == 0
    assert maker.chunk(mapped_frame(1, centre=(30.0, 0.0, 0.0))) is not None


def test_pixels_without_depth_or_confidence_are_no_points() -> None:
    frame = mapped_frame()
    for depth in (0.0, -1.0, np.nan, np.inf):
        assert PointMaker().chunk(replace(frame, depth=np.full_like(frame.depth, depth))) is None
    assert PointMaker().chunk(replace(frame, confidence=np.full_like(frame.confidence, np.nan))) is None


def test_frames_that_a_cloud_leaves_out_give_no_points() -> None:
    frame = mapped_frame()
    lost = Tracking(state=TrackingState.LOST, reason=TrackingReason.DARKNESS, sub_map=None)
    for left_out in (replace(frame, tracking=lost), replace(frame, status=FrameStatus.CUT)):
        assert PointMaker().chunk(left_out) is None


def test_a_pose_that_is_none_gives_no_points_and_harms_no_later_frame() -> None:
    maker, frame = PointMaker(), mapped_frame()
    broken = torch.full((4, 4), torch.nan, dtype=torch.float64)
    assert maker.chunk(replace(frame, world_from_camera=broken)) is None
    assert maker.chunk(frame) is not None


def test_confidence_is_the_same_measure_in_all_frames() -> None:
    confidence = np.array([np.nan, 0.2, 1.0, 2.0, 5.0, 1e9, np.inf], np.float32)
    assert confidence_bytes(confidence).tolist() == [0, 0, 0, 128, 204, 255, 255]


def test_a_message_reads_as_the_page_says() -> None:
    frame = mapped_frame(7, **POSED)
    chunk, pose = made(frame), frame.world_from_camera.numpy()
    shown = Shown.read(
        points_message(PlacedChunk(sequence=12, chunk=chunk, world_from_chunk=pose, version=2), count=100)
    )
    assert (shown.kind, shown.codec, shown.sequence, shown.time_us) == (3, 4, 12, 700_000)
    assert len(shown.payload) == 100 * ROW.itemsize == 1000
    assert (shown.fields["frame"], shown.fields["count"], shown.fields["total"]) == (7, 100, len(chunk))
    assert (shown.fields["pose"], shown.fields["version"]) == (pose.ravel().tolist(), 2)
    assert np.array_equal(shown.positions, chunk.positions[:100])
    assert np.array_equal(shown.colours, chunk.rows["colour"][:100])


@pytest.mark.extra
def test_a_take_gives_the_points_of_its_frames(tmp_path: Path) -> None:
    longtake.map("world:9?frames=10&size=126x98", tmp_path / "mapped", memory="10MB")
    take = longtake.open_take(tmp_path / "mapped")
    found = list(chunks_of_take(take.folder))
    assert [chunk.frame for chunk, _ in found] == [record.index for record in take.records]
    for position, (chunk, pose) in enumerate(found):
        assert np.array_equal(pose, take.trajectory.world_from_camera[position].numpy())
        projected = chunk.positions @ take.intrinsics[position].numpy().T
        pixels = np.rint(projected[:, :2] / projected[:, 2:]).astype(int)
        depth = take.depth(position)[pixels[:, 1], pixels[:, 0]]
        assert np.abs(chunk.positions[:, 2] - depth).max() <= chunk.scale
    assert [chunk.frame for chunk, _ in chunks_of_take(take.folder, most_frames=4)] == [0, 3, 6, 9]
