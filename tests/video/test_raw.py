"""Arrays of a Python program as frames."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from longtake.errors import InputError, SettingError
from longtake.video.raw import RawFrames
from longtake.video.sampling import FrameSampling

Drawn = Callable[..., np.ndarray]


def test_arrays_come_back_evenly_spaced(drawn: Drawn) -> None:
    source = RawFrames([drawn(number) for number in range(4)], fps=5.0)
    frames = list(source.frames())
    assert source.num_frames == 4
    np.testing.assert_allclose([frame.timestamp_s for frame in frames], [0.0, 0.2, 0.4, 0.6])
    for number, frame in enumerate(frames):
        np.testing.assert_array_equal(frame.image, drawn(number))
    assert [frame.index for frame in source.frames(2)] == [2, 3]


def test_arrays_keep_the_times_that_come_with_them(drawn: Drawn) -> None:
    source = RawFrames([(drawn(0), 7.5), (drawn(1), 8.0), (drawn(2), 100.25)], FrameSampling(end_s=50.0))
    assert [frame.timestamp_s for frame in source.frames()] == [7.5, 8.0]


def test_generator_is_read_as_it_is_needed(drawn: Drawn) -> None:
    made: list[int] = []

    def generate() -> Iterator[np.ndarray]:
        for number in range(100):
            made.append(number)
            yield drawn(number)

    source = RawFrames(generate())
    frames = source.frames()
    next(frames)
    next(frames)
    frames.close()
    assert made == [0, 1]
    assert source.num_frames is None


def test_array_that_is_filled_again_keeps_its_first_picture(drawn: Drawn) -> None:
    buffer = np.empty((48, 64, 3), np.uint8)

    def fill() -> Iterator[np.ndarray]:
        for number in range(3):
            buffer[...] = drawn(number)
            yield buffer

    for number, frame in enumerate(list(RawFrames(fill()).frames())):
        np.testing.assert_array_equal(frame.image, drawn(number))


def test_grey_deep_transparent_and_strided_arrays_become_rgb(drawn: Drawn) -> None:
    grey = drawn(3)[..., 0]
    transparent = np.dstack([drawn(3), np.zeros((48, 64), np.uint8)])
    arrays = [drawn(3)[:, ::-1], grey, grey.astype(np.uint16) * 257, transparent]
    frames = [frame.image for frame in RawFrames(arrays).frames()]
    np.testing.assert_array_equal(frames[0], drawn(3)[:, ::-1])
    np.testing.assert_array_equal(frames[1], grey[..., None].repeat(3, axis=-1))
    np.testing.assert_array_equal(frames[2], frames[1])
    assert (frames[3] == 255).all()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (np.zeros((4, 4, 3), np.float32), r"as frame 1 of frames, but got float32 of shape \(4, 4, 3\)"),
        (np.zeros((4, 4, 3), np.uint16), "but got uint16"),
        (np.zeros((3, 4, 4), np.uint8).transpose(0, 2, 1)[..., :2], r"uint8 of shape \(3, 4, 2\)"),
        (np.zeros((4,), np.uint8), r"of shape \(4,\)"),
        (np.zeros((0, 4, 3), np.uint8), r"of shape \(0, 4, 3\)"),
        (np.zeros((2, 4, 4, 3), np.uint8), r"of shape \(2, 4, 4, 3\)"),
        (torch.zeros(4, 4, 3), "Expected a NumPy array as frame 1 of frames, but got Tensor"),
    ],
)
def test_arrays_that_are_no_pictures_are_refused(wrong: object, sentence: str) -> None:
    def frames() -> Iterator[object]:
        yield np.zeros((4, 4, 3), np.uint8)
        yield wrong

    with pytest.raises(InputError, match=sentence):
        list(RawFrames(frames()).frames())


@pytest.mark.parametrize("second_s", [1.0, 0.5, float("nan"), float("inf")])
def test_times_that_do_not_increase_are_refused(drawn: Drawn, second_s: float) -> None:
    with pytest.raises(InputError, match=r"Expected a time (after 1|in seconds).* for frame 1 of frames, but got"):
        list(RawFrames([(drawn(0), 1.0), (drawn(1), second_s)]).frames())


def test_other_sizes_are_told_and_rates_without_meaning_refused(drawn: Drawn) -> None:
    frames = list(RawFrames([drawn(0), drawn(1, 10, 10), drawn(2)]).frames())
    assert [frame.image is not None for frame in frames] == [True, False, True]
    with pytest.raises(SettingError, match=r"Expected more than 0 frames a second, but got 0\.0"):
        RawFrames([], fps=0.0)


@pytest.mark.parametrize("time_s", [True, np.True_, "1", None, math.nan])
def test_what_is_no_time_is_one_sentence(drawn: Drawn, time_s: Any) -> None:
    with pytest.raises(InputError, match=r"^Expected a time in seconds for frame 0 of frames, but got [^\n]*\.$"):
        list(RawFrames(iter([(drawn(0), time_s)])).frames())


def test_a_masked_array_is_refused_with_what_to_do(drawn: Drawn) -> None:
    with pytest.raises(InputError, match=r"all pixels of frame 0 of frames, but got a masked array; fill it"):
        list(RawFrames([np.ma.masked_array(drawn(0), mask=True)]).frames())
