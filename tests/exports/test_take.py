"""A take of a mapped video holds all that was found, in the network's pixels or the source's."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from longtake.errors import InputError, SettingError
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.take import DepthKind, PixelGrid, TakeSettings, TakeSink
from longtake.spatial.placement import Placement
from longtake.takes.depth_files import DepthFiles
from longtake.takes.header import Content, Unit
from longtake.takes.images import ImageFiles
from longtake.takes.take import Take, read_take


def written(folder: Path, frames: list[MappedFrame], chosen: TakeSettings) -> Take:
    with TakeSink(folder, chosen) as sink:
        for frame in frames:
            sink.write(frame)
    return read_take(folder)


def test_take_holds_all_that_was_found(tmp_path: Path, cut_frames: list[MappedFrame]) -> None:
    cut_frames = [*cut_frames[:3], replace(cut_frames[3], status=FrameStatus.JUMP)]
    chosen = TakeSettings(images=ImageFiles.PNG, depth=DepthKind.NPZ, fps=2.0, unit=Unit.METRE)
    take = written(tmp_path / "take", cut_frames, chosen)
    assert (take.header.content, take.header.unit, take.header.fps) == (Content.RESULT, Unit.METRE, 2.0)
    assert take.header.size == (38, 64)
    assert take.header.source == cut_frames[0].placement
    for place, frame in enumerate(cut_frames):
        record = take.records[place]
        assert (record.index, record.timestamp_s) == (frame.index, frame.timestamp_s)
        assert (record.status, record.window) == (frame.status, frame.window)
        assert record.keyframe == (frame.kind != "passing")
        assert record.source is None
        assert np.array_equal(take.depth(place), frame.depth)
        assert np.array_equal(take.confidence(place), frame.confidence)
        assert np.array_equal(take.image(place), frame.image)
        assert torch.equal(take.intrinsics[place], frame.intrinsics)
        torch.testing.assert_close(take.trajectory.world_from_camera[place], frame.world_from_camera)


def test_take_holds_no_more_than_is_wanted(tmp_path: Path, frames: list[MappedFrame]) -> None:
    written(tmp_path / "take", frames[:2], TakeSettings(images=None, depth=None, confidence=False))
    assert sorted(path.name for path in (tmp_path / "take").iterdir()) == ["frames.jsonl", "poses.tum", "take.json"]


def test_take_in_the_sources_pixels_holds_its_images(tmp_path: Path, cut_frames: list[MappedFrame]) -> None:
    take = written(tmp_path / "take", cut_frames[:2], TakeSettings(images=ImageFiles.PNG, pixels=PixelGrid.SOURCE))
    assert take.header.size == (144, 192)
    assert take.header.source is None
    assert np.array_equal(take.image(1), cut_frames[1].source_image)
    sure = take.confidence(1)
    assert np.array_equal(sure[16:-15:3, 1::3], cut_frames[1].confidence)
    assert not sure[:15].any()


def test_what_was_put_around_the_source_has_no_depth(tmp_path: Path, frames: list[MappedFrame]) -> None:
    padded = replace(frames[0], placement=Placement(128, 60, 0.5, 0.5, 0.0, 9.0))
    depth = written(tmp_path / "take", [padded], TakeSettings()).depth(0)
    assert depth[9:39].all()
    assert not depth[:9].any()
    assert not depth[39:].any()


@pytest.mark.parametrize("pixels", PixelGrid)
def test_source_may_change_its_size(tmp_path: Path, cut_frames: list[MappedFrame], pixels: PixelGrid) -> None:
    """The same pictures, at half the resolution from the second frame on."""
    first, second = cut_frames[:2]
    placed = Placement(96, 72, 2 / 3, 2 / 3, 0.0, -5.0)
    smaller = replace(second, source_image=second.source_image[::2, ::2].copy(), placement=placed)
    chosen = TakeSettings(images=ImageFiles.PNG, pixels=pixels, depth=DepthKind.NPZ)
    take = written(tmp_path / "take", [first, smaller], chosen)
    same = written(tmp_path / "same", [first, second], chosen)
    assert np.array_equal(take.depth(1), same.depth(1))
    torch.testing.assert_close(take.intrinsics, same.intrinsics, rtol=1e-12, atol=0)
    assert take.records[0].source is None
    assert take.records[1].source == (placed if pixels is PixelGrid.MODEL else None)


def test_step_of_depth_fits_the_first_frame_unless_told(tmp_path: Path, frames: list[MappedFrame]) -> None:
    assert 1.5 < np.median(frames[0].depth) < 3.2
    far = replace(frames[1], depth=frames[1].depth * 1e3)
    blind = replace(frames[0], depth=np.full_like(frames[0].depth, np.nan))
    assert written(tmp_path / "a", [frames[0]], TakeSettings()).header.depth == DepthFiles(0.0005)
    assert written(tmp_path / "b", [blind, far], TakeSettings()).header.depth == DepthFiles(0.001)
    assert written(tmp_path / "c", [far], TakeSettings(depth_step=0.1)).header.depth == DepthFiles(0.1)


def test_pixels_too_far_are_counted_across_a_break(tmp_path: Path, frames: list[MappedFrame]) -> None:
    is_far = [frame.depth > np.median(frame.depth) for frame in frames[:3]]
    far = [replace(frame, depth=frame.depth + 1000 * mask) for frame, mask in zip(frames[:3], is_far, strict=True)]
    num_far = [int(mask.sum()) for mask in is_far]
    chosen = TakeSettings(depth_step=0.001)
    with TakeSink(tmp_path / "take", chosen) as sink:
        sink.write(far[0])
        state = sink.checkpoint()
        sink.write(far[1])
        assert sink.num_pixels_too_far == sum(num_far[:2])
    with TakeSink(tmp_path / "take", chosen, state=state) as sink:
        assert sink.num_pixels_too_far == num_far[0]
        for frame in far[1:]:
            sink.write(frame)
        assert sink.num_pixels_too_far == sum(num_far)


def test_run_broken_off_before_its_first_frame_begins_again(tmp_path: Path, frames: list[MappedFrame]) -> None:
    with TakeSink(tmp_path / "take", TakeSettings()) as sink:
        state = sink.checkpoint()
        for frame in frames[:3]:
            sink.write(frame)
    (tmp_path / "take" / "cloud.ply").write_text("of another sink")
    with TakeSink(tmp_path / "take", TakeSettings(), state=state) as sink:
        assert not (tmp_path / "take" / "take.json").exists()
        sink.write(frames[4])
    assert [record.index for record in read_take(tmp_path / "take").records] == [4]
    assert json.loads(json.dumps(state.values)) == {"num_frames": 0, "num_pixels_too_far": 0}


def test_a_header_that_was_changed_since_is_noticed(tmp_path: Path, frames: list[MappedFrame]) -> None:
    with TakeSink(tmp_path / "take", TakeSettings()) as sink:
        sink.write(frames[0])
        state = sink.checkpoint()
    header = tmp_path / "take" / "take.json"
    header.write_text(header.read_text().replace('"fps": null', '"fps": 7'))
    with pytest.raises(InputError, match=r"take\.json as the run wrote it, but .*; start again with --overwrite"):
        TakeSink(tmp_path / "take", TakeSettings(), state=state)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"images": ImageFiles.VIDEO}, "a video cannot go on after a break"),
        ({"depth": DepthKind.NPZ, "depth_step": 0.1}, "Only 16-bit depth has a step"),
        ({"depth": None, "depth_step": 0.1}, "Only 16-bit depth has a step"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        TakeSettings(**changes)  # type: ignore[arg-type]


def test_step_must_have_a_length() -> None:
    with pytest.raises(SettingError, match="Expected a depth step greater than 0"):
        TakeSettings(depth_step=-1.0)
