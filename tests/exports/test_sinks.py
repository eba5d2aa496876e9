"""What holds for every append sink: broken off and resumed it leaves the same files; a full disk leaves whole ones."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longtake.errors import InputError
from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import MappedFrame
from longtake.exports.ply import PlySink
from longtake.exports.point_filter import PointFilter
from longtake.exports.poses import KittiSink, TumSink
from longtake.exports.sink import AppendSink, OpenAppendSink, Sink, SinkState, Tee
from longtake.exports.take import DepthKind, PixelGrid, TakeSettings, TakeSink
from longtake.takes.atomic_files import GrowingFile
from longtake.takes.images import ImageFiles
from longtake.takes.take import read_take
from longtake.takes.trajectory import Trajectory
from longtake.takes.trajectory_file import read_trajectory
from longtake.takes.tum import write_tum

Open = Callable[[Path, SinkState | None], AppendSink]
FilesOf = Callable[[Path], dict[str, bytes]]


def open_kitti(folder: Path, state: SinkState | None) -> AppendSink:
    return KittiSink(folder / "poses.txt", state=state)


def open_take(folder: Path, state: SinkState | None) -> AppendSink:
    return TakeSink(folder / "take", TakeSettings(), state=state)


def open_exact_take(folder: Path, state: SinkState | None) -> AppendSink:
    chosen = TakeSettings(depth=DepthKind.NPZ, images=ImageFiles.PNG, pixels=PixelGrid.SOURCE, confidence=False)
    return TakeSink(folder / "take", chosen, state=state)


def open_ply(folder: Path, state: SinkState | None) -> AppendSink:
    return PlySink(folder / "cloud.ply", CloudSettings(), state=state)


def open_small_ply(folder: Path, state: SinkState | None) -> AppendSink:
    """So small that voxels become wider again and again."""
    return PlySink(folder / "cloud.ply", CloudSettings(max_points=300, points=PointFilter(every=2)), state=state)


def open_tee(folder: Path, state: SinkState | None) -> AppendSink:
    """All in one folder, which the take takes first."""
    sinks: dict[str, OpenAppendSink] = {
        "take": lambda state: TakeSink(folder, TakeSettings(), state=state),
        "kitti": partial(open_kitti, folder),
        "ply": partial(open_small_ply, folder),
    }
    return Tee(sinks, state=state)


SINKS = [open_kitti, open_take, open_exact_take, open_ply, open_small_ply, open_tee]


@pytest.fixture(scope="module")
def gappy(cut_frames: list[MappedFrame]) -> list[MappedFrame]:
    """The walk without some frames, as if they could not be read, and once from a source of another size."""
    walk = [frame for frame in cut_frames if frame.index not in (0, 4)]
    half = walk[5].source_image[::2, ::2]
    placed = replace(walk[5].placement, source_width=96, source_height=72, scale_x=2 / 3, scale_y=2 / 3)
    return [*walk[:5], replace(walk[5], source_image=half, placement=placed), *walk[6:]]


@pytest.mark.extra
@pytest.mark.parametrize("open_sink", SINKS)
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kept=st.integers(0, 8), lost=st.integers(0, 8), checkpoints=st.sets(st.integers(0, 8)))
def test_sink_killed_anywhere_and_resumed_leaves_the_same_files(
    gappy: list[MappedFrame],
    files_of: FilesOf,
    open_sink: Open,
    kept: int,
    lost: int,
    checkpoints: set[int],
    write_all: Callable[..., None],
    stored: Callable[[SinkState], SinkState],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_all(open_sink(folder / "whole", None), gappy)
        state = SinkState()
        with open_sink(folder / "broken", None) as broken:
            for place, frame in enumerate([*gappy[: kept + lost], None]):
                if place == kept:
                    state = stored(broken.checkpoint())
                elif place in checkpoints:
                    broken.checkpoint()
                if frame is not None:
                    broken.write(frame)
            # what a killed process leaves; this one goes on to its end elsewhere
            shutil.copytree(folder / "broken", folder / "killed")
        write_all(open_sink(folder / "killed", state), gappy[kept:])
        assert files_of(folder / "killed") == files_of(folder / "whole")


@pytest.mark.parametrize("open_sink", SINKS)
def test_closing_twice_or_without_a_frame_is_fine(tmp_path: Path, open_sink: Open) -> None:
    sink = open_sink(tmp_path / "out", None)
    sink.checkpoint()
    sink.close()
    sink.close()


@pytest.mark.parametrize("open_sink", SINKS)
def test_what_is_there_already_is_not_overwritten(
    tmp_path: Path, frames: list[MappedFrame], files_of: FilesOf, open_sink: Open, write_all: Callable[..., None]
) -> None:
    write_all(open_sink(tmp_path, None), frames[:2])
    before = files_of(tmp_path)
    with pytest.raises(InputError, match="already"):
        open_sink(tmp_path, None)
    assert files_of(tmp_path) == before


def test_what_is_there_already_is_overwritten_when_asked(
    tmp_path: Path, frames: list[MappedFrame], files_of: FilesOf, write_all: Callable[..., None]
) -> None:
    for count in (5, 3):
        write_all(TumSink(tmp_path / "a.tum", overwrite=True), frames[:count])
        write_all(KittiSink(tmp_path / "a.txt", overwrite=True), frames[:count])
        write_all(PlySink(tmp_path / "a.ply", CloudSettings(), overwrite=True), frames[:count])
        write_all(TakeSink(tmp_path / "take", TakeSettings(), overwrite=True), frames[:count])
    assert len(read_trajectory(tmp_path / "a.tum")) == len(read_trajectory(tmp_path / "a.txt")) == 3
    assert len(read_take(tmp_path / "take")) == 3
    assert len(list((tmp_path / "take" / "depth").iterdir())) == 3


@pytest.mark.parametrize("open_sink", SINKS)
def test_folder_that_cannot_be_written_is_one_sentence_before_the_first_frame(tmp_path: Path, open_sink: Open) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"file.* cannot be written \((Not a directory|File exists)\); make room"):
        open_sink(tmp_path / "file", None)
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(InputError, match="Permission denied"):
            open_sink(tmp_path / "locked", None)


def write_until_refused(sink: Sink, frames: Sequence[MappedFrame], refusal: str) -> int:
    """How many frames were written."""
    written: list[int] = []

    def write() -> None:
        with sink:
            for frame in frames:
                sink.write(frame)
                written.append(frame.index)

    with pytest.raises(InputError, match=refusal):
        write()
    return len(written)


@pytest.mark.parametrize("room", [0, 100, 300, 700, 1000])
@pytest.mark.parametrize("open_sink", [lambda folder, _: TumSink(folder / "trajectory.tum"), open_kitti])
def test_full_disk_leaves_the_poses_before(
    tmp_path: Path,
    frames: list[MappedFrame],
    open_sink: Callable[[Path, SinkState | None], Sink],
    room: int,
    files_no_longer_than: Callable[[int], AbstractContextManager[None]],
) -> None:
    with files_no_longer_than(room):
        refusal = r"(trajectory\.tum|poses\.txt) cannot be written \(File too large\)"
        written = write_until_refused(open_sink(tmp_path, None), frames, refusal)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size == 0 or path.read_bytes().endswith(b"\n")
    if written:
        assert len(read_trajectory(path)) == written


def test_no_space_left_is_one_sentence_and_leaves_whole_lines(
    tmp_path: Path, frames: list[MappedFrame], monkeypatch: pytest.MonkeyPatch, write_all: Callable[..., None]
) -> None:
    left, write = [500], GrowingFile._write

    def write_a_part(file: GrowingFile, piece: bytes) -> None:
        write(file, piece[: left[0]])
        left[0] -= len(piece)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(GrowingFile, "_write", write_a_part)
    with pytest.raises(InputError, match=r"a\.tum cannot be written \(No space left on device\)"):
        write_all(TumSink(tmp_path / "a.tum"), frames)
    assert 0 < len(read_trajectory(tmp_path / "a.tum")) < len(frames)


@pytest.mark.parametrize("room", [100, 5000, 13_000])
def test_full_disk_leaves_a_readable_take(
    tmp_path: Path,
    frames: list[MappedFrame],
    room: int,
    files_no_longer_than: Callable[[int], AbstractContextManager[None]],
) -> None:
    long = [
        replace(frame, index=frame.index + 10 * lap, timestamp_s=frame.timestamp_s + 10 * lap)
        for lap in range(9)
        for frame in frames
    ]
    with files_no_longer_than(room):
        sink = TakeSink(tmp_path / "take", TakeSettings())
        written = write_until_refused(sink, long, r"The take .*take cannot be written \(File too large\)")
    assert (written > 10) == (room == 13_000)
    if written:
        take = read_take(tmp_path / "take")
        assert len(take) == len(list((tmp_path / "take" / "depth").iterdir())) == written
        assert take.depth(written - 1).shape == (48, 64)


def test_full_disk_leaves_the_cloud_of_the_last_checkpoint(
    tmp_path: Path,
    frames: list[MappedFrame],
    files_of: FilesOf,
    files_no_longer_than: Callable[[int], AbstractContextManager[None]],
) -> None:
    sink = PlySink(tmp_path / "cloud.ply", CloudSettings())
    sink.write(frames[0])
    sink.checkpoint()
    before = files_of(tmp_path)
    for frame in frames[1:]:
        sink.write(frame)
    with files_no_longer_than(len(before["cloud.ply"]) + 1000):
        with pytest.raises(InputError, match=r"cloud\.ply cannot be written \(File too large\); make room"):
            sink.checkpoint()
        with pytest.raises(InputError, match=r"cloud\.ply cannot be written"):
            sink.close()
    assert files_of(tmp_path) == before
    sink.close()
    assert len(files_of(tmp_path)["cloud.ply"]) > len(before["cloud.ply"])


def test_trajectory_is_the_file_that_would_be_written_at_once(
    tmp_path: Path, frames: list[MappedFrame], write_all: Callable[..., None]
) -> None:
    write_all(TumSink(tmp_path / "a.tum"), frames)
    times = frames[0].intrinsics.new_tensor([frame.timestamp_s for frame in frames])
    poses = frames[0].intrinsics.new_tensor(np.stack([frame.world_from_camera.numpy() for frame in frames]))
    write_tum(tmp_path / "b.tum", Trajectory(timestamp_s=times, world_from_camera=poses))
    assert (tmp_path / "a.tum").read_bytes() == (tmp_path / "b.tum").read_bytes()


def test_frames_without_a_result_have_the_pose_before_in_a_kitti_file(
    tmp_path: Path, frames: list[MappedFrame], write_all: Callable[..., None]
) -> None:
    write_all(KittiSink(tmp_path / "a.txt"), [frames[place] for place in (2, 3, 6)])
    rows = np.loadtxt(tmp_path / "a.txt")
    wanted = [frames[place].world_from_camera.numpy()[:3].ravel() for place in (2, 2, 2, 3, 3, 3, 6)]
    assert np.array_equal(rows, np.stack(wanted))


def test_tee_closes_all_that_it_opened(tmp_path: Path, frames: list[MappedFrame]) -> None:
    (tmp_path / "b.txt").write_text("mine")
    sinks: dict[str, OpenAppendSink] = {
        name: partial(lambda path, state: KittiSink(path, state=state), tmp_path / f"{name}.txt") for name in "abc"
    }
    with pytest.raises(InputError, match=r"b\.txt exists already"):
        Tee(sinks)
    assert not (tmp_path / "c.txt").exists()

    class Failing(KittiSink):
        def close(self) -> None:
            super().close()
            raise InputError("it fails")

    sinks |= {"b": lambda state: Failing(tmp_path / "d.txt", state=state)}
    shutil.rmtree(tmp_path)
    tee = Tee(sinks)
    tee.write(frames[0])
    with pytest.raises(InputError, match="it fails"):
        tee.close()
    for name in ("a", "c"):
        with pytest.raises(ValueError, match="closed file"):
            tee[name].write(frames[1])


def test_sink_that_joins_at_a_checkpoint_begins_there(
    tmp_path: Path, frames: list[MappedFrame], stored: Callable[[SinkState], SinkState]
) -> None:
    open_a: OpenAppendSink = lambda state: TakeSink(tmp_path / "a", TakeSettings(), state=state)  # noqa: E731
    open_b: OpenAppendSink = lambda state: TakeSink(tmp_path / "b", TakeSettings(), state=state)  # noqa: E731
    with Tee({"a": open_a}) as first:
        first.write(frames[0])
        state = stored(first.checkpoint())
    with Tee({"a": open_a, "b": open_b}, state=state) as second:
        second.write(frames[1])
    assert len(read_take(tmp_path / "a")) == 2
    assert len(read_take(tmp_path / "b")) == 1


def test_file_lost_since_the_checkpoint_is_one_sentence(
    tmp_path: Path, frames: list[MappedFrame], stored: Callable[[SinkState], SinkState]
) -> None:
    for open_sink in (open_kitti, open_take):
        with open_sink(tmp_path, None) as sink:
            sink.write(frames[0])
            state = stored(sink.checkpoint())
        for path in [*tmp_path.rglob("*.tum"), *tmp_path.rglob("*.txt")]:
            os.truncate(path, 10)
        with pytest.raises(InputError, match=r"; start again with --overwrite"):
            open_sink(tmp_path, state)
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        with pytest.raises(InputError, match=r"; start again with --overwrite"):
            open_sink(tmp_path, state)
