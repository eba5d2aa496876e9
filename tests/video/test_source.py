"""What people write is opened as what they mean."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtake.errors import InputError, SettingError
from longtake.takes.header import Content, TakeHeader
from longtake.video.files import VideoFile
from longtake.video.folders import FollowedFolder, FollowSettings, Pictures
from longtake.video.sampling import FrameSampling
from longtake.video.source import Source, SourceOptions, open_source, videos_of
from longtake.video.streams import LiveStream
from longtake.video.worlds import WorldTour

Film = Callable[..., Path]
Drawn = Callable[..., np.ndarray]


@pytest.fixture
def folder(tmp_path: Path, drawn: Drawn) -> Path:
    (tmp_path / "pictures").mkdir()
    for number in range(12):
        Image.fromarray(drawn(number)).save(tmp_path / f"pictures/{number}.png")
    return tmp_path / "pictures"


def test_texts_are_recognised(tmp_path: Path, film: Film, drawn: Drawn, folder: Path) -> None:
    film(tmp_path / "film.mp4", [drawn(0)])
    film(tmp_path / "without_suffix", [drawn(0)], file_format="mp4")
    expected = {
        str(tmp_path / "film.mp4"): VideoFile,
        str(tmp_path / "without_suffix"): VideoFile,
        str(folder): Pictures,
        str(folder / "3.png"): Pictures,
        "world:7?frames=3&size=16x12": WorldTour,
        "camera:0": LiveStream,
        "/dev/video1": LiveStream,
        "rtsp://127.0.0.1/film": LiveStream,
        "RTSP://127.0.0.1/film": LiveStream,
        "udp://127.0.0.1:1234": LiveStream,
    }
    for text, kind in expected.items():
        source = open_source(text)
        assert isinstance(source, kind), text
        assert isinstance(source, Source)
        assert source.is_live == (kind is LiveStream)


def test_single_picture_is_one_frame(folder: Path, drawn: Drawn) -> None:
    frames = list(open_source(str(folder / "3.png")).frames())
    assert len(frames) == 1
    np.testing.assert_array_equal(frames[0].image, drawn(3))


def test_take_is_recognised_by_its_header(tmp_path: Path) -> None:
    header = TakeHeader(content=Content.TRUTH, width=64, height=48)
    (tmp_path / "take.json").write_text(header.to_json())
    with pytest.raises(InputError, match="take"):
        open_source(str(tmp_path))
    with pytest.raises(SettingError, match=r"Expected a folder of pictures to follow, but .* is a take"):
        open_source(str(tmp_path), options=SourceOptions(follow=True))


def test_options_reach_the_source(folder: Path) -> None:
    source = open_source(str(folder), FrameSampling(fps=2.0), SourceOptions(picture_fps=4.0))
    assert [frame.timestamp_s for frame in source.frames()] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert source.num_frames == 6
    options = SourceOptions(follow=True, following=FollowSettings(poll_s=0.01, idle_s=0.05))
    followed = open_source(str(folder), FrameSampling(stride=5), options)
    assert isinstance(followed, FollowedFolder)
    assert len(list(followed.frames())) == 3


def test_a_rate_alone_takes_every_picture_of_a_folder(folder: Path) -> None:
    source = open_source(str(folder), FrameSampling(fps=2.0))
    assert [frame.timestamp_s for frame in source.frames()] == [number / 2 for number in range(12)]
    assert source.note is None
    assert [frame.timestamp_s for frame in open_source(str(folder)).frames()] == [number / 30 for number in range(12)]


def test_pictures_that_are_not_taken_are_told_with_the_option_that_changes_it(folder: Path) -> None:
    source = open_source(str(folder), FrameSampling(fps=2.0), SourceOptions(picture_fps=8.0))
    assert source.note is not None
    assert source.note.startswith(f"Of 12 pictures in {folder} 3 are taken,")
    assert "as 8 pictures a second, which --picture-fps (picture_fps=...) changes." in source.note


@pytest.mark.parametrize("text", ["absent.mp4", "", "x" * 5000, "a\0b", "ftp://host/film.mp4", "http:/typo"])
def test_what_is_not_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^Expected [^\n]*$"):
        open_source(text)


def test_text_under_the_name_of_a_film_or_picture_is_one_sentence(tmp_path: Path) -> None:
    for name in ("note.mp4", "note.png"):
        (tmp_path / name).write_text("no film")
        with pytest.raises(InputError, match=rf"[^\n]*{name}[^\n]*"):
            list(open_source(str(tmp_path / name)).frames())


def test_empty_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Expected pictures in the folder"):
        open_source(str(tmp_path))


def test_options_without_meaning_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="Expected a number of threads from 1, or 0 for as many as fit, but got -1"):
        SourceOptions(threads=-1)
    for text in ("camera:0", str(tmp_path / "film.mp4")):
        with pytest.raises(InputError, match="Expected a folder to follow at"):
            open_source(text, options=SourceOptions(follow=True))


@pytest.mark.parametrize("skip", [0, 1, 4])
def test_every_source_that_can_be_read_again_gives_the_same_frames(
    tmp_path: Path, film: Film, drawn: Drawn, folder: Path, skip: int
) -> None:
    film(tmp_path / "film.mp4", [drawn(number) for number in range(12)])
    for text in (str(tmp_path / "film.mp4"), str(folder), "world:3?frames=8&size=16x12"):
        source = open_source(text, FrameSampling(stride=2))
        first, again = list(source.frames())[skip:], list(source.frames(skip))
        assert len(first) > 0 or skip == 4
        assert [(f.index, f.timestamp_s) for f in first] == [(f.index, f.timestamp_s) for f in again]
        assert all(np.array_equal(a.image, b.image) for a, b in zip(first, again, strict=True))


def test_folder_of_videos_is_taken_apart_and_is_no_source_itself(tmp_path: Path) -> None:
    for name in ("b10.mp4", "b9.MKV", "notes.txt", ".hidden.mp4"):
        (tmp_path / name).write_text("not looked into")
    assert [Path(text).name for text in videos_of(str(tmp_path))] == ["b9.MKV", "b10.mp4"]
    with pytest.raises(
        InputError, match=r"but it holds videos \(2, b9\.MKV first\); name one of them, or .* longtake map"
    ):
        open_source(str(tmp_path))
    (tmp_path / "a.png").write_text("a picture")
    for text in (str(tmp_path), str(tmp_path / "b10.mp4"), "world:7", "rtsp://host/path", str(tmp_path / "absent")):
        assert videos_of(text) == [text]


@pytest.mark.parametrize("name", ["video.mp4", "picture.png"])
def test_a_pipe_in_place_of_a_file_is_refused_without_waiting_for_it(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="is a pipe or a device"):
        open_source(str(tmp_path / name))


def test_a_film_in_place_of_one_of_equal_size_is_another_source(tmp_path: Path, film: Film, drawn: Drawn) -> None:
    for name, number in (("a", 0), ("b", 1), ("c", 0)):
        (tmp_path / name).mkdir()
        film(tmp_path / name / "film.avi", [drawn(number)] * 3, codec="rawvideo", pixels="bgr24")
    first, other, same = (open_source(str(tmp_path / name / "film.avi")).identity for name in "abc")
    assert first["num_bytes"] == other["num_bytes"]
    assert first["contents"] != other["contents"]
    assert first == same
