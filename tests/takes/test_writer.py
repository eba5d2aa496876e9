"""Takes are written frame by frame, refuse what does not fit, and end whole or in a sentence."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtake.errors import InputError, SettingError
from longtake.takes.depth_files import DepthFiles
from longtake.takes.frames import TakeFrame
from longtake.takes.header import TakeHeader
from longtake.takes.images import ImageFiles
from longtake.takes.take import read_take
from longtake.takes.tum import read_tum
from longtake.takes.writer import TakeWriter, make_room_for_take

ONE_FILE_EACH = (ImageFiles.PNG, ImageFiles.JPEG)
MakeFrame = Callable[..., TakeFrame]
MakeHeader = Callable[..., TakeHeader]


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_take_has_the_files_the_format_promises(write_small_take: Callable[..., Path]) -> None:
    assert files_in(write_small_take(2)) == [
        "depth/000000.png",
        "depth/000001.png",
        "frames.jsonl",
        "images/000000.png",
        "images/000001.png",
        "poses.tum",
        "take.json",
    ]


def test_poses_are_a_tum_file(write_small_take: Callable[..., Path], make_frame: MakeFrame) -> None:
    trajectory = read_tum(write_small_take(3) / "poses.tum")
    for position in range(3):
        frame = make_frame(position)
        assert trajectory.timestamp_s[position] == frame.timestamp_s
        torch.testing.assert_close(trajectory.world_from_camera[position], frame.world_from_camera)


def test_same_frames_make_the_same_take(write_small_take: Callable[..., Path]) -> None:
    for images in (ImageFiles.VIDEO, ImageFiles.JPEG):
        a, b = (write_small_take(2, name=f"{images.name}-{name}", images=images) for name in "ab")
        assert files_in(a) == files_in(b)
        assert all((a / name).read_bytes() == (b / name).read_bytes() for name in files_in(a))


def test_take_can_be_read_while_it_grows(tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader) -> None:
    with TakeWriter(tmp_path / "walk", make_header()) as writer:
        assert json.loads((tmp_path / "walk" / "take.json").read_text())["format"] == "longtake-take"
        with pytest.raises(InputError, match="none is complete yet"):
            read_take(tmp_path / "walk")
        for step in range(3):
            writer.write(make_frame(step))
            assert len(read_take(tmp_path / "walk")) == step + 1
            assert read_take(tmp_path / "walk").depth(step).shape == (48, 64)


def test_frames_may_be_skipped_and_numpy_times_do_not_matter(
    tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader
) -> None:
    with TakeWriter(tmp_path / "walk", make_header()) as writer:
        for step in (3, 5, 2_000_000):
            writer.write(replace(make_frame(step % 7), index=step, timestamp_s=np.float64(step / 7)))
    take = read_take(tmp_path / "walk")
    assert [record.index for record in take.records] == [3, 5, 2_000_000]
    assert take.trajectory.timestamp_s.tolist() == [3 / 7, 5 / 7, 2_000_000 / 7]
    assert take.image(2).shape == (48, 64, 3)


def test_pixels_too_far_for_sixteen_bits_are_counted(
    tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader
) -> None:
    step = 5e-5
    frame = make_frame(0)
    assert frame.depth is not None
    num_far = int((frame.depth > 65535.5 * step).sum())
    assert 0 < num_far < frame.depth.size
    with TakeWriter(tmp_path / "walk", make_header(depth=DepthFiles(step))) as writer:
        writer.write(frame)
        writer.write(replace(frame, index=1, timestamp_s=1.0))
    assert writer.num_pixels_too_far == 2 * num_far
    assert int((read_take(tmp_path / "walk").depth(0) == 0).sum()) == num_far


def test_questions_are_kept_beside_the_frames(tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader) -> None:
    questions = [{"text": "Where is the blue ball?", "answer": "left", "asked_at_s": 1.5}]
    with TakeWriter(tmp_path / "walk", make_header()) as writer:
        writer.write(make_frame(0))
        assert read_take(tmp_path / "walk").questions is None
        writer.write_questions(questions)
    assert read_take(tmp_path / "walk").questions == questions


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"image": None}, "Expected image of 64x48 with frame 5, as the header says, but got no image"),
        ({"image": np.zeros((48, 63, 3), np.uint8), "depth": np.ones((48, 63))}, "but got image of 63x48"),
        ({"depth": None}, "but got no depth"),
        ({"image": np.zeros((47, 64, 3), np.uint8), "depth": np.ones((47, 64))}, "but got image of 64x47"),
        ({"confidence": np.ones((48, 64))}, "Expected no confidence with frame 5.*but got confidence of 64x48"),
        ({"index": 4}, "after index 4 at .* but got index 4"),
        ({"index": 3}, "after index 4 at .* but got index 3"),
        ({"timestamp_s": 4 / 30}, "write frames in order"),
        ({"world_from_camera": torch.zeros(4, 4)}, "pose of frame 5"),
    ],
)
def test_frame_that_does_not_fit_is_refused_and_leaves_no_trace(
    tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader, changes: dict[str, Any], sentence: str
) -> None:
    with TakeWriter(tmp_path / "walk", make_header()) as writer:
        writer.write(make_frame(4))
        before = files_in(tmp_path)
        with pytest.raises(InputError, match=sentence):
            writer.write(replace(make_frame(5), **changes))
        assert files_in(tmp_path) == before
        writer.write(make_frame(5))
    assert len(read_take(tmp_path / "walk")) == 2


def same_files(a: Path, b: Path) -> bool:
    return files_in(a) == files_in(b) and all(
        (a / name).read_bytes() == (b / name).read_bytes() for name in files_in(a)
    )


@pytest.mark.parametrize("images", [ImageFiles.PNG, ImageFiles.JPEG, None])
@pytest.mark.parametrize("kept", [0, 1, 3, 5])
def test_resumed_take_is_the_one_that_was_never_broken_off(
    tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader, images: ImageFiles | None, kept: int
) -> None:
    frames = [make_frame(step, with_image=images is not None) for step in (0, 1, 2, 5, 6, 7)]
    header = make_header(images=images)
    with TakeWriter(tmp_path / "whole", header) as whole:
        for frame in frames:
            whole.write(frame)
    broken = TakeWriter(tmp_path / "broken", header)
    with broken:
        for frame in [*frames[:5], make_frame(99, with_image=images is not None)]:
            broken.write(frame)
        broken.sync()
    with (tmp_path / "broken" / "frames.jsonl").open("ab") as records:
        records.write(b'{"index": 10')
    with TakeWriter.resume(tmp_path / "broken", kept) as resumed:
        if kept:
            assert len(read_take(tmp_path / "broken")) == kept
            with pytest.raises(InputError, match="write frames in order"):
                resumed.write(frames[kept - 1])
        for frame in frames[kept:]:
            resumed.write(frame)
    assert same_files(tmp_path / "whole", tmp_path / "broken")


def test_resuming_deletes_nothing_through_a_link(write_small_take: Callable[..., Path], tmp_path: Path) -> None:
    take, elsewhere = write_small_take(), tmp_path / "elsewhere"
    (take / "depth").rename(elsewhere)
    (take / "depth").symlink_to(elsewhere)
    (elsewhere / "000900.png").write_text("mine")
    with TakeWriter.resume(take, 1):
        pass
    assert (elsewhere / "000900.png").read_text() == "mine"


def test_take_can_be_resumed_only_after_frames_it_has(
    write_small_take: Callable[..., Path], make_frame: MakeFrame
) -> None:
    folder = write_small_take(3)
    before = files_in(folder)
    with (
        pytest.raises(InputError, match=r"Expected 4 frames to go on after in .*frames\.jsonl, but it has 3"),
        TakeWriter.resume(folder, 4),
    ):
        pass
    with (folder / "poses.tum").open("r+b") as poses:
        poses.truncate(poses.seek(0, 2) - 1)
    with pytest.raises(InputError, match=r"poses\.tum, but it has 2"), TakeWriter.resume(folder, 3):
        pass
    assert files_in(folder) == before
    with TakeWriter.resume(folder, 2) as writer:
        writer.write(make_frame(2))
    assert len(read_take(folder)) == 3


def test_take_that_cannot_be_resumed_is_one_sentence(write_small_take: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="are a video, which cannot be gone on with"):
        TakeWriter.resume(write_small_take(1, images=ImageFiles.VIDEO), 1)
    with pytest.raises(InputError, match="Expected a take in"):
        TakeWriter.resume(tmp_path / "nowhere", 1)


def test_room_made_early_may_be_shared(tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader) -> None:
    make_room_for_take(tmp_path / "out", overwrite=False)
    (tmp_path / "out" / "cloud.ply").write_text("ply")
    with pytest.raises(InputError, match="holds other files"), TakeWriter(tmp_path / "out", make_header()):
        pass
    with TakeWriter(tmp_path / "out", make_header(), has_room=True) as writer:
        writer.write(make_frame(0))
    assert len(read_take(tmp_path / "out")) == 1


def test_synced_writer_knows_every_file_it_wrote(
    tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        "longtake.takes.writer.sync_path", lambda path: synced.append(str(path.relative_to(tmp_path / "walk")))
    )
    monkeypatch.setattr("longtake.takes.writer._MOST_UNSYNCED", 3)
    writer = TakeWriter(tmp_path / "walk", make_header())
    with writer:
        for step in range(2):
            writer.write(make_frame(step))
        assert synced == []
        writer.sync()
        assert {f"depth/{step:06d}.png" for step in range(2)} | {"images", "depth", "."} <= set(synced)
        synced.clear()
        for step in range(2, 5):
            writer.write(make_frame(step))
        assert {f"images/{step:06d}.png" for step in range(2, 5)} <= set(synced)
        assert "depth/000001.png" not in synced
    with pytest.raises(InputError, match="is closed"):
        writer.sync()


def test_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path, make_header: MakeHeader) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    for overwrite in (False, True):
        with (
            pytest.raises(InputError, match="holds other files; name another"),
            TakeWriter(tmp_path, make_header(), overwrite=overwrite),
        ):
            pass
    assert files_in(tmp_path) == ["diary.txt"]


def test_take_is_replaced_only_when_asked(
    write_small_take: Callable[..., Path], make_frame: MakeFrame, make_header: MakeHeader
) -> None:
    folder = write_small_take(3)
    (folder / "depth" / "note.txt").write_text("mine")
    (folder / "answers.json").write_text("[]")
    with pytest.raises(InputError, match="holds a take already"), TakeWriter(folder, make_header()):
        pass
    assert len(read_take(folder)) == 3
    with TakeWriter(folder, make_header(images=None, depth=DepthFiles(None)), overwrite=True) as writer:
        writer.write(make_frame(0, with_image=False))
    assert files_in(folder) == ["depth/000000.npz", "depth/note.txt", "frames.jsonl", "poses.tum", "take.json"]


def test_odd_video_is_refused_before_anything_is_overwritten(
    write_small_take: Callable[..., Path], make_header: MakeHeader
) -> None:
    folder = write_small_take(2)
    with pytest.raises(SettingError, match="63x48; write the images as PNG"):
        TakeWriter(folder, replace(make_header(images=ImageFiles.VIDEO), width=63), overwrite=True)
    assert len(read_take(folder)) == 2


def test_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path, make_header: MakeHeader) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "walk", tmp_path / ("long" * 100)):
        with pytest.raises(InputError, match=r"The take .* cannot be written"), TakeWriter(folder, make_header()):
            pass


def test_closed_writer_is_one_sentence(tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader) -> None:
    writer = TakeWriter(tmp_path / "walk", make_header())
    with pytest.raises(InputError, match="is closed; write frames inside its with block"):
        writer.write(make_frame(0))
    assert not (tmp_path / "walk").exists()


@pytest.mark.parametrize("images", [*ImageFiles, None])
def test_exception_in_the_block_leaves_a_whole_take(
    tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader, images: ImageFiles | None
) -> None:
    def write_and_fail() -> None:
        with TakeWriter(tmp_path / "walk", make_header(images=images)) as writer:
            for step in range(3):
                writer.write(make_frame(step, with_image=images is not None))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_fail()
    take = read_take(tmp_path / "walk")
    assert len(take) == 3
    if images is not None:
        assert len(list(take.images())) == 3


@pytest.mark.parametrize("images", [*ImageFiles, None])
@pytest.mark.parametrize("room", [0, 10, 100, 200, 300, 1000, 3000])
def test_full_disk_is_one_sentence_and_leaves_a_readable_take(
    tmp_path: Path,
    make_frame: MakeFrame,
    make_header: MakeHeader,
    images: ImageFiles | None,
    room: int,
    files_no_longer_than: Callable[[int], AbstractContextManager[None]],
) -> None:
    frames = [make_frame(step, with_image=images is not None, with_depth=False) for step in range(40)]
    writer = TakeWriter(tmp_path / "walk", make_header(images=images, depth=None))
    written: list[TakeFrame] = []

    def write_all() -> None:
        with writer, files_no_longer_than(room):
            for frame in frames:
                writer.write(frame)
                written.append(frame)

    with pytest.raises(InputError, match=r"The take .* cannot be written .*; make room there"):
        write_all()
    assert len(written) < len(frames)
    with pytest.raises(InputError, match="is closed"):
        writer.write(frames[-1])
    if written:
        assert len(read_take(tmp_path / "walk")) == len(written)
    assert len(list((tmp_path / "walk").glob("images/*"))) == (len(written) if images in ONE_FILE_EACH else 0)
