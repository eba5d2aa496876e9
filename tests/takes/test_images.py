"""Images come back from files and videos, videos at their true times, and damage is one sentence."""

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from unittest.mock import Mock

import av
import numpy as np
import pytest
from PIL import Image

from longtake.errors import InputError, SettingError
from longtake.takes.images import (
    ImageFiles,
    ImageFolderWriter,
    ImageWriter,
    open_image_writer,
    read_image,
    require_writable_size,
)
from longtake.takes.video_file import VideoWriter, read_video

SIZE = (48, 64)
UNEVEN_S = [0.0, 0.033, 0.1, 0.104, 0.5, 0.51234567, 2.0, 2.04]


def picture(number: int) -> np.ndarray:
    """Smooth colours, which change with the number."""
    v, u = np.mgrid[: SIZE[0], : SIZE[1]]
    return np.stack([u * 3 + number, v * 4 + 2 * number, np.full(SIZE, 30 * number)], axis=-1).astype(np.uint8)


def write_video(path: Path, times_s: list[float], fps: float | None = None) -> None:
    writer = VideoWriter(path, SIZE, fps)
    for number, timestamp_s in enumerate(times_s):
        writer.write(number, timestamp_s, picture(number))
    writer.close()


def times_of(path: Path) -> list[float]:
    with av.open(str(path)) as container:
        return [frame.time for frame in container.decode(video=0) if frame.time is not None]


@pytest.mark.parametrize("fps", [None, 30.0, 29.97, 4.0, 1e-9, 1e12])
def test_video_keeps_uneven_times_within_a_millisecond(tmp_path: Path, fps: float | None) -> None:
    write_video(tmp_path / "video.mp4", UNEVEN_S, fps)
    np.testing.assert_allclose(times_of(tmp_path / "video.mp4"), UNEVEN_S, atol=1e-3)


def test_clock_of_a_video_starts_with_its_first_frame(tmp_path: Path) -> None:
    write_video(tmp_path / "video.mp4", [1.7e9 + time_s for time_s in UNEVEN_S])
    np.testing.assert_allclose(times_of(tmp_path / "video.mp4"), UNEVEN_S, atol=1e-3)


def test_video_keeps_colours_nearly(tmp_path: Path) -> None:
    write_video(tmp_path / "video.mp4", UNEVEN_S)
    images = list(read_video(tmp_path / "video.mp4", SIZE))
    assert len(images) == len(UNEVEN_S)
    for number, image in enumerate(images):
        difference = np.abs(image.astype(float) - picture(number))
        assert difference.mean() <= 2
        assert np.abs((image.astype(float) - picture(number)).mean(axis=(0, 1))).max() <= 1.5  # no tint


def test_video_is_plain_h264_with_an_index_and_named_colours(tmp_path: Path) -> None:
    write_video(tmp_path / "video.mp4", UNEVEN_S)
    with av.open(str(tmp_path / "video.mp4")) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
        assert stream.frames == len(UNEVEN_S)
        assert stream.codec_context.color_range == 1  # limited
        assert next(container.decode(stream)).colorspace in (5, 6)  # ITU-R BT.601


def test_same_frames_make_the_same_video(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        write_video(tmp_path / name, UNEVEN_S)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


def test_every_frame_but_the_newest_can_be_read_while_a_video_grows(tmp_path: Path) -> None:
    path = tmp_path / "video.mp4"
    writer = VideoWriter(path, SIZE, None)
    for number, timestamp_s in enumerate(UNEVEN_S):
        writer.write(number, timestamp_s, picture(number))
        if number:
            assert len(list(read_video(path, SIZE))) == number
    writer.close()
    assert len(list(read_video(path, SIZE))) == len(UNEVEN_S)


def test_video_without_frames_closes(tmp_path: Path) -> None:
    write_video(tmp_path / "video.mp4", [])


@pytest.mark.parametrize("second_s", [1e-6, 6.1 * 3600])
def test_frames_closer_than_a_tick_or_hours_apart_are_refused(tmp_path: Path, second_s: float) -> None:
    writer = VideoWriter(tmp_path / "video.mp4", SIZE, None)
    writer.write(0, 0.0, picture(0))
    with pytest.raises(InputError, match=r"Expected frame 1 from 1/90000 s to 6 hours after .*as PNG instead"):
        writer.write(1, second_s, picture(1))
    writer.close()


def test_video_that_ffmpeg_cannot_write_is_an_error_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = VideoWriter(tmp_path / "video.mp4", SIZE, None)
    with monkeypatch.context() as patch:
        refusing = Mock(mux=Mock(side_effect=av.InvalidDataError(28, "No space left on device")))
        patch.setattr(writer, "_container", refusing)
        with pytest.raises(OSError, match="No space left on device"):
            writer.write(0, 0.0, picture(0))
    writer.close()


def test_days_of_video_keep_their_times(tmp_path: Path) -> None:
    times_s = [5.9 * 3600 * number for number in range(12)]
    write_video(tmp_path / "video.mp4", times_s)
    np.testing.assert_allclose(times_of(tmp_path / "video.mp4"), times_s, atol=1e-3)


@pytest.mark.parametrize("size", [(47, 64), (48, 63), (1, 1)])
def test_odd_video_is_refused_and_images_are_suggested(size: tuple[int, int]) -> None:
    with pytest.raises(SettingError, match=f"MP4, but got {size[1]}x{size[0]}; write the images as PNG instead"):
        require_writable_size(ImageFiles.VIDEO, size)
    require_writable_size(ImageFiles.PNG, size)


def test_png_comes_back_exactly_and_jpeg_nearly(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for files, allowed in ((ImageFiles.PNG, 0), (ImageFiles.JPEG, 12)):
        ImageFolderWriter(tmp_path, files).write(1234567, 0.0, picture(3))
        image = read_image(tmp_path / files.format(index=1234567), SIZE)
        assert np.abs(image.astype(int) - picture(3)).max() <= allowed
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["1234567.jpg", "1234567.png"]


@pytest.mark.parametrize("files", [ImageFiles.PNG, ImageFiles.JPEG])
def test_image_of_which_the_disk_takes_only_a_part_is_an_error(
    tmp_path: Path, files: ImageFiles, files_no_longer_than: Callable[[int], AbstractContextManager[None]]
) -> None:
    (tmp_path / "images").mkdir()
    writer = ImageFolderWriter(tmp_path, files)
    writer.write(0, 0.0, picture(3))
    num_bytes = (tmp_path / files.format(index=0)).stat().st_size
    for room in (0, 1, num_bytes // 2, num_bytes - 20, num_bytes - 1):
        with files_no_longer_than(room), pytest.raises(OSError, match="File too large"):
            writer.write(1, 0.1, picture(3))
    with files_no_longer_than(num_bytes):
        writer.write(1, 0.1, picture(3))


@pytest.mark.parametrize("files", ImageFiles)
def test_every_kind_of_files_has_a_writer(tmp_path: Path, files: ImageFiles) -> None:
    (tmp_path / "images").mkdir()
    writer = open_image_writer(tmp_path, files, SIZE, 30.0)
    assert isinstance(writer, ImageWriter)
    writer.write(0, 0.0, picture(0))
    writer.close()
    assert (tmp_path / files.format(index=0)).exists()


def test_grey_image_is_read_as_three_channels(tmp_path: Path) -> None:
    Image.fromarray(picture(1)[..., 0]).save(tmp_path / "grey.png")
    np.testing.assert_array_equal(read_image(tmp_path / "grey.png", SIZE), picture(1)[..., :1].repeat(3, axis=-1))


def claim_a_huge_image(path: Path) -> None:
    Image.fromarray(picture(0)).save(path)
    data = path.read_bytes()
    path.write_bytes(data[:16] + (50_000).to_bytes(4, "big") * 2 + data[24:])


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: None, "it is missing"),
        (lambda path: path.write_bytes(b""), "cannot be read"),
        (lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n"), "cannot be read"),
        (lambda path: Image.fromarray(picture(0)[1:]).save(path), "Expected 64x48 pixels in .*, but got 64x47"),
        (claim_a_huge_image, "cannot be read"),
        (os.mkfifo, "it is a pipe or a device"),
    ],
)
def test_damaged_image_is_one_sentence(tmp_path: Path, damage: Callable[[Path], None], sentence: str) -> None:
    path = tmp_path / "000000.png"
    damage(path)
    with pytest.raises(InputError, match=sentence):
        read_image(path, SIZE)


def test_image_flipped_at_any_byte_is_one_sentence_or_an_image(tmp_path: Path) -> None:
    path = tmp_path / "000000.png"
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with warnings.catch_warnings(record=True), suppress(InputError):
            assert read_image(path, (4, 4)).shape == (4, 4, 3)


def write_sound(path: Path) -> None:
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.rate = 44100
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def write_other_size(path: Path) -> None:
    writer = VideoWriter(path, (16, 32), None)
    writer.write(0, 0.0, np.zeros((16, 32, 3), np.uint8))
    writer.close()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: None, "Expected a video in .*video.mp4, but it cannot be read"),
        (lambda path: path.write_bytes(b"no video"), "Expected a video in .*video.mp4, but it cannot be read"),
        (write_sound, "Expected a video in .*video.mp4"),
        (write_other_size, "Expected 64x48 pixels in .*video.mp4.*but got 32x16"),
    ],
)
def test_damaged_video_is_one_sentence(tmp_path: Path, damage: Callable[[Path], None], sentence: str) -> None:
    damage(tmp_path / "video.mp4")
    with pytest.raises(InputError, match=sentence):
        list(read_video(tmp_path / "video.mp4", SIZE))
