import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from longtake.errors import InputError
from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.ply import PlySink
from longtake.exports.saved import position_of, saved_frames
from longtake.exports.take import DepthKind, PixelGrid, TakeSettings, TakeSink
from longtake.spatial.placement import Placement
from longtake.takes.images import ImageFiles
from longtake.takes.take import read_take
from longtake.types import FrameKind

EXACT = TakeSettings(images=ImageFiles.PNG, depth=DepthKind.NPZ)
BARE = TakeSettings(images=None, depth=None, confidence=False)


def save(folder: Path, frames: Sequence[MappedFrame], settings: TakeSettings = EXACT) -> Path:
    with TakeSink(folder, settings) as sink:
        for frame in frames:
            sink.write(frame)
    return folder


def ply_of(path: Path, frames: Sequence[MappedFrame]) -> bytes:
    with PlySink(path, CloudSettings()) as sink:
        for frame in frames:
            sink.write(frame)
    return path.read_bytes()


def test_frames_read_back_as_they_were(cut_frames: list[MappedFrame], tmp_path: Path) -> None:
    written = [replace(cut_frames[0], status=FrameStatus.JUMP), *cut_frames[1:]]
    read = list(saved_frames(read_take(save(tmp_path / "take", written))))
    assert len(read) == len(written)
    for got, want in zip(read, written, strict=True):
        assert (got.index, got.timestamp_s, got.status, got.window) == (
            want.index,
            want.timestamp_s,
            want.status,
            want.window,
        )
        assert (got.kind is FrameKind.PASSING) == (want.kind is FrameKind.PASSING)
        assert got.placement == want.placement
        assert torch.allclose(got.world_from_camera, want.world_from_camera, rtol=0, atol=1e-14)
        assert torch.equal(got.intrinsics, want.intrinsics)
        assert np.array_equal(got.depth, want.depth)
        assert np.array_equal(got.confidence, want.confidence)
        assert np.array_equal(got.image, want.image)


def test_what_was_not_saved_is_replaced(frames: list[MappedFrame], tmp_path: Path) -> None:
    for frame in saved_frames(read_take(save(tmp_path / "take", frames, BARE))):
        assert (frame.depth == 0).all()
        assert (frame.confidence == 1).all()
        assert (frame.image == 128).all()
        assert frame.source_image.shape == frame.image.shape == (*frame.depth.shape, 3)


def test_a_cloud_of_saved_frames_is_that_of_the_run_byte_by_byte(cut_frames: list[MappedFrame], tmp_path: Path) -> None:
    saved = saved_frames(read_take(save(tmp_path / "take", cut_frames)))
    assert ply_of(tmp_path / "again.ply", list(saved)) == ply_of(tmp_path / "run.ply", cut_frames)


def test_the_source_image_shows_what_the_network_saw_where_it_saw_it(
    cut_frames: list[MappedFrame], tmp_path: Path
) -> None:
    frame = next(saved_frames(read_take(save(tmp_path / "take", cut_frames[:1]))))
    assert frame.source_image.shape == cut_frames[0].source_image.shape
    assert (frame.source_image[:12] == 0).all()
    assert np.array_equal(frame.source_image[15 + 1 : -15 : 3, 1::3], frame.image)


def test_a_take_in_the_videos_own_pixels_needs_no_placement(cut_frames: list[MappedFrame], tmp_path: Path) -> None:
    settings = replace(EXACT, pixels=PixelGrid.SOURCE)
    frame = next(saved_frames(read_take(save(tmp_path / "take", cut_frames[:1], settings))))
    height, width = cut_frames[0].source_image.shape[:2]
    assert frame.placement == Placement(width, height, 1.0, 1.0)
    assert np.array_equal(frame.source_image, cut_frames[0].source_image)


def change_header(folder: Path, **fields: str) -> None:
    path = folder / "take.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_an_unknown_status_is_refused(frames: list[MappedFrame], tmp_path: Path) -> None:
    folder = save(tmp_path / "take", frames[:1])
    path = folder / "frames.jsonl"
    path.write_text(path.read_text().replace('"ok"', '"upset"'))
    with pytest.raises(InputError, match=r"status of frame 0 in .* got 'upset'"):
        list(saved_frames(read_take(folder)))


def test_frames_are_found_by_their_index(frames: list[MappedFrame], tmp_path: Path) -> None:
    take = read_take(save(tmp_path / "take", [frames[0], frames[4], frames[7]]))
    assert [position_of(take, index) for index in (0, 4, 7)] == [0, 1, 2]
    with pytest.raises(InputError, match=r"frame with index 5 .* from 0 to 7"):
        position_of(take, 5)
