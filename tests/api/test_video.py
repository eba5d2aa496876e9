"""Anything that shows something, as frames that know their time."""

import logging
from pathlib import Path

import pytest
from PIL import Image

import longtake
from longtake.errors import InputError, SettingError


def test_a_world_can_be_gone_through_again_and_again() -> None:
    video = longtake.open_video("world:9?frames=8&size=28x28", start="0.2", end=0.6, fps=5.0)
    assert [round(frame.timestamp_s, 3) for frame in video] == [0.2, 0.4]
    assert [frame.index for frame in video] == [0, 1]
    assert repr(video) == "Video(world 9, about 2 frames)"
    assert not video.is_live


def test_a_picture_that_cannot_be_read_is_left_out_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for index in range(3):
        Image.new("RGB", (8, 6), (index, 0, 0)).save(tmp_path / f"{index}.png")
    (tmp_path / "1.png").write_bytes(b"no picture")
    with caplog.at_level(logging.WARNING):
        frames = list(longtake.open_video(tmp_path, picture_fps=10.0))
    assert [(frame.index, frame.name) for frame in frames] == [(0, "0"), (2, "2")]
    assert "Frame 1 is left out: Expected a picture at" in caplog.text


def test_a_stopped_video_ends() -> None:
    video = longtake.open_video("world:9?size=28x28")
    seen = 0
    for _ in video:
        seen += 1
        if seen == 3:
            video.stop()
    assert seen == 3


@pytest.mark.parametrize(
    ("source", "words", "error", "sentence"),
    [
        ("walk.mp4", {}, InputError, "there is no 'walk.mp4'"),
        (
            "world:9",
            {"speed": 2},
            SettingError,
            "open_video has no keyword 'speed'; choose one of source, start, end, fps",
        ),
        ("world:9", {"start": "soon"}, SettingError, "Expected a time such as"),
        ("world:nine", {}, InputError, "Expected a world such as"),
        ("world:9", {"fps": 0.0}, SettingError, "Expected more than 0 frames a second"),
    ],
)
def test_a_bad_word_is_one_sentence(
    source: str, words: dict[str, object], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        longtake.open_video(source, **words)
