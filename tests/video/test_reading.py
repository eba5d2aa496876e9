"""Whatever the source: one size, problems in place, no picture made in vain, everything closed."""

from collections.abc import Generator, Sequence
from functools import partial

import numpy as np
import pytest

from longtake.errors import InputError
from longtake.video.frame import PendingFrame, VideoFrame
from longtake.video.reading import EVERY_FRAME, Source
from longtake.video.sampling import Extent, FrameSampling


class Script(Source):
    """Plays a list: a size for a picture, a text for a known problem, an error for one found when reading."""

    def __init__(
        self, parts: Sequence[tuple[int, int] | str | InputError], sampling: FrameSampling = EVERY_FRAME
    ) -> None:
        super().__init__("script", sampling)
        self._parts = parts
        self.read: list[int] = []
        self.is_open = False

    @property
    def extent(self) -> Extent:
        return Extent(num_frames=len(self._parts), fps=10.0)

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        self.is_open = True
        try:
            for number, part in enumerate(self._parts):
                if isinstance(part, str):
                    yield PendingFrame.unreadable(number / 10, part)
                else:
                    yield PendingFrame(number / 10, partial(self._read, number, part))
        finally:
            self.is_open = False

    def _read(self, number: int, part: tuple[int, int] | InputError) -> np.ndarray:
        self.read.append(number)
        if isinstance(part, InputError):
            raise part
        return np.full((*part, 3), number, np.uint8)


SIZE = (4, 6)
MIXED = ["gone", InputError("torn"), SIZE, (6, 4), SIZE, "lost", SIZE, InputError("torn again"), SIZE]


def told(frames: list[VideoFrame]) -> list[tuple[int, float, str | None]]:
    return [(frame.index, frame.timestamp_s, frame.problem) for frame in frames]


def test_problems_come_in_place_and_the_rest_goes_on() -> None:
    frames = list(Script(MIXED).frames())
    other_size = (
        "The frame at 0.300 s in script is of another size (4x6; the first is 6x4) and is left out; make all one size, "
        "or give each size as its own source."
    )
    problems = ["gone", "torn", None, other_size, None, "lost", None, "torn again", None]
    assert told(frames) == [(number, number / 10, problem) for number, problem in enumerate(problems)]
    assert [int(frame.image[0, 0, 0]) for frame in frames if frame.image is not None] == [2, 4, 6, 8]


@pytest.mark.parametrize(
    "sampling", [FrameSampling(), FrameSampling(stride=2), FrameSampling(fps=3.0), FrameSampling(start_s=0.35)]
)
@pytest.mark.parametrize("skip", range(11))
def test_skipping_gives_what_reading_on_would(sampling: FrameSampling, skip: int) -> None:
    expected = list(Script(MIXED, sampling).frames())[skip:]
    resumed = list(Script(MIXED, sampling).frames(skip))
    assert told(resumed) == told(expected)
    for one, other in zip(resumed, expected, strict=True):
        np.testing.assert_array_equal(one.image, other.image)


def test_no_picture_is_made_in_vain() -> None:
    sampled = Script([SIZE] * 20, FrameSampling(stride=5))
    list(sampled.frames())
    assert sampled.read == [0, 5, 10, 15]
    skipped = Script([SIZE] * 20)
    list(skipped.frames(17))
    assert skipped.read == [0, 17, 18, 19]  # the first decides the size


def test_source_is_closed_with_its_frames() -> None:
    source = Script([SIZE] * 3)
    frames = source.frames()
    next(frames)
    assert source.is_open
    frames.close()
    assert not source.is_open
    part = Script([SIZE] * 30, FrameSampling(end_s=0.5))
    assert len(list(part.frames())) == 5
    assert not part.is_open


def test_stopped_source_ends_without_a_complaint() -> None:
    source = Script([SIZE] * 9)
    frames = source.frames()
    next(frames)
    source.stop()
    assert list(frames) == []
    assert not source.is_open
    assert list(source.frames()) == []


@pytest.mark.parametrize(
    ("parts", "sampling", "sentence"),
    [
        ([], FrameSampling(), "Expected frames in script, but there are none."),
        (
            [SIZE],
            FrameSampling(start_s=3.0),
            "Expected frames from 3 s on in script, but it ends before; start earlier.",
        ),
        (["gone", InputError("torn")], FrameSampling(), "Not one frame of script can be read: gone"),
        ([InputError("torn"), "gone"], FrameSampling(), "Not one frame of script can be read: torn"),
    ],
)
def test_nothing_at_all_is_an_error(parts: list[object], sampling: FrameSampling, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        list(Script(parts, sampling).frames())
    assert str(caught.value) == sentence


def test_skipping_everything_is_no_error() -> None:
    assert list(Script([SIZE, SIZE]).frames(2)) == []
    with pytest.raises(InputError, match="Not one frame"):
        list(Script(["gone"]).frames(5))


def test_number_of_frames_counts_what_is_sampled() -> None:
    assert Script([SIZE] * 30).num_frames == 30
    assert Script([SIZE] * 30, FrameSampling(stride=7)).num_frames == 5


def test_frame_has_a_picture_or_a_problem() -> None:
    with pytest.raises(AssertionError):
        VideoFrame(0, 0.0, None)
    with pytest.raises(AssertionError):
        VideoFrame(0, 0.0, np.zeros((1, 1, 3), np.uint8), "broken")
