"""A take's images come at the take's own times, from files and from a video alike."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from longtake.errors import InputError
from longtake.takes.frames import TakeFrame
from longtake.takes.header import Content, TakeHeader, read_header
from longtake.takes.images import ImageFiles
from longtake.takes.take import read_take
from longtake.takes.writer import TakeWriter
from longtake.video.sampling import FrameSampling
from longtake.video.take_images import TakeImages

TIMES_S = [1000.0, 1000.04, 1000.5, 1001.25, 1003.0]


def write_take(folder: Path, images: ImageFiles | None, drawn, world: dict[str, int] | None = None) -> Path:
    header = TakeHeader(content=Content.TRUTH, width=64, height=48, images=images, world=world)
    intrinsics = torch.tensor([[60.0, 0.0, 32.0], [0.0, 60.0, 24.0], [0.0, 0.0, 1.0]])
    with TakeWriter(folder, header) as writer:
        for number, timestamp_s in enumerate(TIMES_S):
            writer.write(
                TakeFrame(
                    index=2 * number,
                    timestamp_s=timestamp_s,
                    world_from_camera=torch.eye(4, dtype=torch.float64),
                    intrinsics=intrinsics,
                    image=None if images is None else drawn(number),
                )
            )
    return folder


@pytest.mark.parametrize("images", ImageFiles)
def test_images_and_times_are_the_takes(tmp_path: Path, drawn, images: ImageFiles) -> None:
    folder = write_take(tmp_path / "take", images, drawn)
    source = TakeImages(folder)
    frames = list(source.frames())
    assert source.num_frames == 5
    assert [frame.timestamp_s for frame in frames] == TIMES_S
    for frame, expected in zip(frames, read_take(folder).images(), strict=True):
        np.testing.assert_array_equal(frame.image, expected)
    part = TakeImages(folder, FrameSampling(start_s=0.5, end_s=2.0))
    assert [frame.timestamp_s for frame in part.frames()] == [1000.5, 1001.25]
    assert [frame.index for frame in source.frames(3)] == [3, 4]


def test_take_of_a_world_shows_one(tmp_path: Path, drawn) -> None:
    assert not TakeImages(write_take(tmp_path / "camera", ImageFiles.PNG, drawn)).shows_world
    assert TakeImages(write_take(tmp_path / "world", ImageFiles.PNG, drawn, {"seed": 7})).shows_world


def test_image_that_is_missing_is_told(tmp_path: Path, drawn) -> None:
    folder = write_take(tmp_path / "take", ImageFiles.PNG, drawn)
    (folder / "images/000004.png").unlink()
    frames = list(TakeImages(folder).frames())
    assert [frame.image is not None for frame in frames] == [True, True, False, True, True]
    assert "000004.png, which the take lists, but it is missing" in frames[2].problem


def test_video_that_ends_early_is_told_for_each_frame(tmp_path: Path, drawn) -> None:
    folder = write_take(tmp_path / "take", ImageFiles.VIDEO, drawn)
    other = write_take(tmp_path / "other", ImageFiles.VIDEO, drawn)
    for name in ("frames.jsonl", "poses.tum"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        extra = [
            lines[-1].replace("1003.0", f"{time_s}.0").replace('"index": 8', f'"index": {time_s}')
            for time_s in (1004, 1005)
        ]
        (other / name).write_text("".join([*lines, *extra]))
    (other / "take.json").write_text(replace(read_header(other), num_frames=7).to_json())
    frames = list(TakeImages(other).frames())
    assert [frame.image is not None for frame in frames] == [True] * 5 + [False] * 2
    assert "video.mp4 ends before the frame at 1005.000 s of its take" in frames[-1].problem


def test_take_without_images_is_refused(tmp_path: Path, drawn) -> None:
    folder = write_take(tmp_path / "take", None, drawn)
    with pytest.raises(InputError, match=r"Expected images in the take .*, but it has none; make it with images"):
        TakeImages(folder)
