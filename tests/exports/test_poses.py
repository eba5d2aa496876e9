"""Poses that are replaced when later frames move them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from longtake.errors import InputError
from longtake.exports.frame import MappedFrame, PosedFrame
from longtake.exports.poses import LivePoses, TumSink
from longtake.exports.sink import Correction
from longtake.spatial.similarity import Similarity
from longtake.takes.tum import as_written, read_tum
from longtake.types import MovedSpan


def similarity() -> Similarity:
    angle = torch.tensor(0.3, dtype=torch.float64)
    cos, sin, zero, one = angle.cos(), angle.sin(), torch.zeros_like(angle), torch.ones_like(angle)
    rotation = torch.stack([cos, zero, sin, zero, one, zero, -sin, zero, cos]).reshape(3, 3)
    return Similarity(torch.tensor(1.7, dtype=torch.float64), rotation, torch.tensor([1.0, -2.0, 0.5]).double())


def poses_in(path: Path) -> torch.Tensor:
    return read_tum(path).world_from_camera


def test_a_pose_is_in_the_file_when_it_is_written(tmp_path: Path, frames: list[MappedFrame]) -> None:
    with LivePoses(tmp_path / "poses.tum") as sink:
        for count, frame in enumerate(frames, start=1):
            sink.write(replace(frame, provisional=True))
            assert len(poses_in(tmp_path / "poses.tum")) == count


def test_the_last_version_of_every_pose_is_what_a_finished_take_has(tmp_path: Path, frames: list[MappedFrame]) -> None:
    """To the last bit, whatever was thought before."""
    wrong = [
        replace(frame, world_from_camera=similarity().of_cameras(frame.world_from_camera), provisional=True)
        for frame in frames
    ]
    with LivePoses(tmp_path / "live.tum") as live:
        for frame in wrong[:6]:
            live.write(frame)
        live.correct(Correction(version=1, frames=tuple(frames[2:6])))
        for frame in wrong[6:]:
            live.write(frame)
        live.correct(Correction(version=2, frames=(*frames[:2], *frames[6:])))
    with TumSink(tmp_path / "final.tum") as final:
        for frame in frames:
            final.write(frame)
    _, *lines = (tmp_path / "final.tum").read_text().splitlines()
    assert (tmp_path / "live.tum").read_text().splitlines() == lines


def test_spans_move_by_their_similarity_and_named_frames_are_taken_as_they_are(
    tmp_path: Path, frames: list[MappedFrame]
) -> None:
    span = MovedSpan(first_frame=3, last_frame=7, now_from_before=similarity().matrix)
    named = replace(frames[5], world_from_camera=torch.eye(4, dtype=torch.float64))
    with LivePoses(tmp_path / "poses.tum") as sink:
        for frame in frames:
            if frame.index != 4:  # as if it was dropped
                sink.write(replace(frame, provisional=True))
        sink.correct(Correction(version=1, spans=(span,), frames=(named, replace(frames[4]))))
    want = {frame.index: frame.world_from_camera for frame in frames if frame.index != 4}
    want |= {index: similarity().of_cameras(want[index]) for index in (3, 6, 7)} | {5: named.world_from_camera}
    got = poses_in(tmp_path / "poses.tum")
    torch.testing.assert_close(got, as_written(torch.stack(list(want.values()))), rtol=0, atol=1e-12)


def test_frames_that_were_final_move_with_their_span(tmp_path: Path, frames: list[MappedFrame]) -> None:
    spans = (
        MovedSpan(first_frame=2, last_frame=4, now_from_before=similarity().matrix),
        MovedSpan(first_frame=4, last_frame=6, now_from_before=similarity().matrix),
    )
    with LivePoses(tmp_path / "poses.tum") as sink:
        for frame in frames:
            if frame.index != 3:  # as if it was dropped
                sink.write(replace(frame, provisional=frame.index > 4))
        sink.correct(Correction(version=1, spans=spans))
        sink.correct(Correction(version=2, spans=spans[:1], frames=tuple(frames[7:])))
    want = {frame.index: frame.world_from_camera for frame in frames if frame.index != 3}
    for span in (*spans, spans[0]):
        moved = range(span.first_frame, span.last_frame + 1)
        want |= {index: similarity().of_cameras(pose) for index, pose in want.items() if index in moved}
    got = poses_in(tmp_path / "poses.tum")
    torch.testing.assert_close(got, as_written(torch.stack(list(want.values()))), rtol=0, atol=1e-11)


def test_pixels_are_not_held(tmp_path: Path, frames: list[MappedFrame]) -> None:
    with LivePoses(tmp_path / "poses.tum") as sink:
        sink.write(replace(frames[0], provisional=True))
        assert type(sink._provisional[0]) is PosedFrame


def test_only_provisional_poses_are_held(tmp_path: Path, frames: list[MappedFrame]) -> None:
    first, second, third, *_ = frames
    with LivePoses(tmp_path / "poses.tum") as sink:
        sink.write(first)
        assert not sink._provisional
        for frame in (second, third):
            sink.write(replace(frame, provisional=True))
        sink.correct(Correction(version=1, frames=(second, replace(third, provisional=True))))
        assert list(sink._provisional) == [third.index]
        sink.correct(Correction(version=2, frames=(third,)))
        assert not sink._provisional
        sink.write(frames[3])
    want = as_written(torch.stack([frame.world_from_camera for frame in frames[:4]]))
    assert torch.equal(as_written(poses_in(tmp_path / "poses.tum")), want)


def test_a_correction_that_the_disk_does_not_take_leaves_the_poses_before(
    tmp_path: Path, frames: list[MappedFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with LivePoses(tmp_path / "poses.tum") as sink:
        sink.write(replace(frames[0], provisional=True))
        before = (tmp_path / "poses.tum").read_bytes()
        correction = Correction(version=1, frames=(replace(frames[0], world_from_camera=torch.eye(4).double()),))
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", full)
            with pytest.raises(InputError, match=r"poses\.tum cannot be written \(No space left on device\)"):
                sink.correct(correction)
        assert (tmp_path / "poses.tum").read_bytes() == before
        sink.write(frames[1])
        sink.correct(correction)
    assert torch.equal(poses_in(tmp_path / "poses.tum")[0], torch.eye(4).double())


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "poses.tum").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        LivePoses(tmp_path / "poses.tum")


def test_poses_that_never_came_leave_no_file_in_the_way(tmp_path: Path) -> None:
    for _ in range(2):
        LivePoses(tmp_path / "poses.tum").close()
    assert not list(tmp_path.iterdir())
