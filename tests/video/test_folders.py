"""Folders of pictures of every kind, in natural order, finished or growing."""

import random
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from longtake.errors import InputError, SettingError
from longtake.video.folders import FollowedFolder, FollowSettings, Pictures, natural_order, open_folder, read_picture
from longtake.video.sampling import FrameSampling

Drawn = Callable[..., np.ndarray]
NumberIn = Callable[[np.ndarray], int]
QUICK = FollowSettings(poll_s=0.02, idle_s=0.5, damaged_s=0.1)


def test_numbers_in_names_count_by_value(tmp_path: Path, drawn: Drawn, number_in: NumberIn) -> None:
    names = ["img1.png", "img2.png", "img10.png", "img11.png", "img100.png"]
    shuffled = list(enumerate(names))
    random.Random(4).shuffle(shuffled)
    for number, name in shuffled:
        Image.fromarray(drawn(number)).save(tmp_path / name)
    assert [number_in(frame.image) for frame in open_folder(tmp_path).frames()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "names",
    [
        ["a2", "a10"],
        ["1.5", "1.25"],
        ["07", "7", "8"],
        ["A1", "a2", "B1", "b2"],
        ["frame_1_9.png", "frame_1_10.png", "frame_2_1.png"],
        ["", "0", "a"],
        ["x" + str(10**30), "x" + str(10**30 + 1)],
    ],
)
def test_natural_order_of_names(names: list[str]) -> None:
    mixed = names[::-1]
    assert sorted(mixed, key=natural_order) == names


@given(st.lists(st.text("ab01²٣._", max_size=6), max_size=8))
@settings(deadline=None, max_examples=100)
def test_any_names_have_one_order(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(names, key=natural_order) == sorted(backwards, key=natural_order)


def test_times_follow_from_the_rate(tmp_path: Path, drawn: Drawn) -> None:
    for number in range(6):
        Image.fromarray(drawn(number)).save(tmp_path / f"{number}.png")
    source = open_folder(tmp_path, fps=4.0)
    assert [frame.timestamp_s for frame in source.frames()] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    assert source.num_frames == 6
    assert open_folder(tmp_path, FrameSampling(fps=2.0), fps=4.0).num_frames == 3
    assert len(list(open_folder(tmp_path, FrameSampling(fps=2.0), fps=4.0).frames())) == 3


def test_what_is_no_picture_is_passed_over(tmp_path: Path, drawn: Drawn) -> None:
    Image.fromarray(drawn(0)).save(tmp_path / "0.PNG")
    (tmp_path / "readme.txt").write_text("nothing")
    (tmp_path / "._1.png").write_bytes(b"a Mac's shadow")
    (tmp_path / "2.png").mkdir()
    assert len(list(open_folder(tmp_path).frames())) == 1


def test_pictures_of_sixteen_bits_lose_their_lower_eight(tmp_path: Path) -> None:
    values = np.arange(48 * 64).reshape(48, 64).astype(np.uint16) * 21
    Image.fromarray(values).save(tmp_path / "grey.png")
    image = read_picture(tmp_path / "grey.png")
    np.testing.assert_array_equal(image, (values // 256)[..., None].repeat(3, axis=-1))
    assert image.max() > 200


def test_eight_bits_written_as_sixteen_come_back(tmp_path: Path, drawn: Drawn) -> None:
    grey = drawn(3)[..., 0]
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "grey.png")
    np.testing.assert_array_equal(read_picture(tmp_path / "grey.png")[..., 0], grey)


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1", "CMYK", "RGB"])
def test_pictures_of_every_kind_become_rgb(tmp_path: Path, drawn: Drawn, mode: str) -> None:
    path = tmp_path / ("picture.tif" if mode == "CMYK" else "picture.png")
    Image.fromarray(drawn(3)).convert(mode).save(path)
    assert read_picture(path).shape == (48, 64, 3)
    if mode in ("L", "LA"):
        grey = np.asarray(Image.fromarray(drawn(3)).convert("L"))
        np.testing.assert_array_equal(read_picture(path), grey[..., None].repeat(3, axis=-1))


def test_transparency_lies_on_white(tmp_path: Path) -> None:
    Image.new("RGBA", (3, 2), (200, 0, 0, 128)).save(tmp_path / "a.png")
    np.testing.assert_allclose(read_picture(tmp_path / "a.png")[0, 0], (227, 127, 127), atol=1)


def test_turned_pictures_are_upright(tmp_path: Path, drawn: Drawn) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for number in range(2):
        Image.fromarray(drawn(number)).save(tmp_path / f"{number}.png", exif=exif)
    frames = list(open_folder(tmp_path).frames())
    np.testing.assert_array_equal(frames[1].image, np.rot90(drawn(1), -1))


def test_unreadable_picture_in_the_middle_is_told_and_passed(tmp_path: Path, drawn: Drawn) -> None:
    for number in range(7):
        Image.fromarray(drawn(number)).save(tmp_path / f"{number}.png")
    (tmp_path / "2.png").write_text("no picture")
    whole = (tmp_path / "4.png").read_bytes()
    (tmp_path / "4.png").write_bytes(whole[: len(whole) // 2])
    Image.fromarray(drawn(1, 10, 20)).save(tmp_path / "5.png")
    frames = list(open_folder(tmp_path).frames())
    assert [frame.image is not None for frame in frames] == [True, True, False, True, False, False, True]
    assert "Expected a picture at" in frames[2].problem
    assert "2.png" in frames[2].problem
    assert "4.png" in frames[4].problem
    assert "picture '5' at 0.167 s" in frames[5].problem
    assert "is of another size (20x10; the first is 64x48) and is left out; make all one size" in frames[5].problem
    assert frames[6].timestamp_s == 6 / 30


def test_picture_of_fractions_says_so(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((4, 4), np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(
        InputError, match=r"Not one frame of .*: Expected a picture of whole numbers, but got fractions"
    ):
        list(open_folder(tmp_path).frames())


def test_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(
        InputError, match=r"Expected pictures in the folder .*, but found none; they end in \.png, \.jpg"
    ):
        open_folder(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        open_folder(tmp_path / "absent")


def test_folder_of_damaged_pictures_is_one_sentence(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_text("no picture")
    with pytest.raises(InputError, match=r"Not one frame of .* can be read: Expected a picture at .*0.jpg"):
        list(open_folder(tmp_path).frames())


@pytest.mark.parametrize("fps", [0.0, -1.0, float("nan"), float("inf")])
def test_rates_without_meaning_are_refused(tmp_path: Path, fps: float) -> None:
    with pytest.raises(SettingError, match="Expected more than 0 pictures a second"):
        Pictures("name", [], fps=fps)
    with pytest.raises(SettingError, match="Expected more than 0 pictures a second"):
        FollowedFolder(tmp_path, fps=fps)


def test_skipped_pictures_are_not_read(tmp_path: Path, drawn: Drawn) -> None:
    for number in range(6):
        Image.fromarray(drawn(number)).save(tmp_path / f"{number}.png")
    source = open_folder(tmp_path)
    expected = list(source.frames())
    for number in (1, 2, 3):
        (tmp_path / f"{number}.png").write_text("gone meanwhile")
    resumed = list(source.frames(4))
    assert [(frame.index, frame.timestamp_s) for frame in resumed] == [(4, 4 / 30), (5, 5 / 30)]
    for one, other in zip(resumed, expected[4:], strict=True):
        np.testing.assert_array_equal(one.image, other.image)


def in_background(write: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=write)
    thread.start()
    return thread


def test_growing_folder_is_followed_until_it_is_done(tmp_path: Path, drawn: Drawn, number_in: NumberIn) -> None:
    def write() -> None:
        for number in range(12):
            Image.fromarray(drawn(number)).save(tmp_path / f"img{number}.png")
            time.sleep(0.02)
        (tmp_path / ".done").touch()

    writer = in_background(write)
    source = FollowedFolder(tmp_path, fps=10.0, following=FollowSettings(poll_s=0.02, idle_s=20.0))
    assert source.num_frames is None
    began_s = time.monotonic()
    frames = list(source.frames())
    writer.join()
    assert time.monotonic() - began_s < 10
    assert [number_in(frame.image) for frame in frames] == list(range(12))
    np.testing.assert_allclose([frame.timestamp_s for frame in frames], np.arange(12) / 10)


def test_folder_without_news_ends_after_a_while(tmp_path: Path, drawn: Drawn) -> None:
    for number in range(3):
        Image.fromarray(drawn(number)).save(tmp_path / f"{number}.png")
    began_s = time.monotonic()
    frames = list(FollowedFolder(tmp_path, following=QUICK).frames())
    assert len(frames) == 3
    assert 0.4 < time.monotonic() - began_s < 3


def test_folder_that_is_written_slowly_is_not_idle(tmp_path: Path, drawn: Drawn) -> None:
    def write() -> None:
        for number in range(4):
            time.sleep(0.2)
            Image.fromarray(drawn(number)).save(tmp_path / f"{number}.png")

    writer = in_background(write)
    frames = list(FollowedFolder(tmp_path, following=FollowSettings(poll_s=0.5, idle_s=0.45)).frames())
    writer.join()
    assert len(frames) == 4


def test_picture_is_taken_only_when_it_is_complete(tmp_path: Path, drawn: Drawn) -> None:
    buffer = tmp_path / "elsewhere.bin"
    Image.fromarray(drawn(1)).save(buffer, "png")
    data = buffer.read_bytes()

    def write() -> None:
        with (tmp_path / "0.png").open("wb", buffering=0) as file:
            for start in range(0, len(data), max(1, len(data) // 10)):
                file.write(data[start : start + len(data) // 10])
                time.sleep(0.04)
        (tmp_path / ".done").touch()

    writer = in_background(write)
    following = FollowSettings(poll_s=0.01, idle_s=20.0, damaged_s=5.0)
    frames = list(FollowedFolder(tmp_path, following=following).frames())
    writer.join()
    assert len(frames) == 1
    np.testing.assert_array_equal(frames[0].image, drawn(1))


def test_later_picture_waits_for_the_one_before(tmp_path: Path, drawn: Drawn, number_in: NumberIn) -> None:
    Image.fromarray(drawn(1)).save(tmp_path / "1.png")
    whole = (tmp_path / "1.png").read_bytes()
    (tmp_path / "0.png").write_bytes(whole[:60])

    def write() -> None:
        time.sleep(0.15)
        Image.fromarray(drawn(0)).save(tmp_path / "0.png")
        time.sleep(0.1)
        (tmp_path / ".done").touch()

    writer = in_background(write)
    following = FollowSettings(poll_s=0.02, idle_s=20.0, damaged_s=5.0)
    frames = list(FollowedFolder(tmp_path, following=following).frames())
    writer.join()
    assert [number_in(frame.image) for frame in frames] == [0, 1]


def test_picture_that_stays_damaged_is_told_and_passed(tmp_path: Path, drawn: Drawn) -> None:
    for number in range(3):
        Image.fromarray(drawn(number)).save(tmp_path / f"{number}.png")
    (tmp_path / "1.png").write_text("no picture")
    frames = FollowedFolder(tmp_path, following=FollowSettings(poll_s=0.02, idle_s=30.0, damaged_s=0.1)).frames()
    assert [frame.image is not None for frame in islice(frames, 3)] == [True, False, True]
    frames.close()


def test_folder_that_stays_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Expected frames in .*, but there are none"):
        list(FollowedFolder(tmp_path, following=FollowSettings(poll_s=0.01, idle_s=0.05)).frames())
    with pytest.raises(InputError, match=r"Expected a folder to follow at .*absent, but there is none; make it first"):
        FollowedFolder(tmp_path / "absent")
    with pytest.raises(SettingError, match=r"Expected a time greater than 0 s for 'idle', but got 0\.0 s"):
        FollowSettings(idle_s=0.0)


def test_slow_reader_does_not_make_a_folder_idle(tmp_path: Path, drawn: Drawn) -> None:
    Image.fromarray(drawn(0)).save(tmp_path / "0.png")
    frames = FollowedFolder(tmp_path, following=FollowSettings(poll_s=0.02, idle_s=0.3)).frames()
    next(frames)
    time.sleep(0.5)
    Image.fromarray(drawn(1)).save(tmp_path / "1.png")
    assert next(frames).image is not None
    frames.close()


def test_stopped_folder_ends_while_it_waits(tmp_path: Path, drawn: Drawn) -> None:
    Image.fromarray(drawn(0)).save(tmp_path / "0.png")
    source = FollowedFolder(tmp_path, following=FollowSettings(poll_s=0.02, idle_s=60.0))
    timer = threading.Timer(0.2, source.stop)
    timer.start()
    assert len(list(source.frames())) == 1
    timer.join()
