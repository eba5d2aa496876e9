"""Frames are picked by their times, against a rule written out slowly."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import SettingError
from longtake.video.sampling import Extent, FrameSampling, parse_time


@dataclass(frozen=True)
class Moment:
    timestamp_s: float
    problem: str | None = None


def moments(*times_s: float) -> list[Moment]:
    return [Moment(time_s) for time_s in times_s]


def picked(sampling: FrameSampling, frames: list[Moment]) -> list[float]:
    return [frame.timestamp_s for frame in sampling.pick(frames)]


def even(fps: float, count: int, first_s: float = 0.0) -> list[Moment]:
    return [Moment(first_s + number / fps) for number in range(count)]


def test_every_frame_is_taken_unless_asked_otherwise() -> None:
    frames = even(30, 40)
    assert list(FrameSampling().pick(frames)) == frames
    assert list(FrameSampling().pick([])) == []


@pytest.mark.parametrize(("fps", "every"), [(30.0, 1), (15.0, 2), (10.0, 3), (5.0, 6), (1.0, 30)])
@pytest.mark.parametrize("first_s", [0.0, 0.1, 1234.567, 1.7e9])
def test_rate_that_divides_the_videos_takes_one_of_so_many(fps: float, every: int, first_s: float) -> None:
    frames = even(30, 100, first_s)
    assert list(FrameSampling(fps=fps).pick(frames)) == frames[::every]


@pytest.mark.parametrize("fps", [10.0, 15.0, 6.0, 7.5])
def test_times_rounded_to_a_millisecond_pick_the_same_frames(fps: float) -> None:
    exact = even(30, 300)
    rounded = [Moment(round(frame.timestamp_s, 3)) for frame in exact]
    assert [round(time_s, 3) for time_s in picked(FrameSampling(fps=fps), exact)] == picked(
        FrameSampling(fps=fps), rounded
    )


def test_rate_that_does_not_divide_stays_right_for_an_hour() -> None:
    times_s = picked(FrameSampling(fps=7.0), even(30, 30 * 3600))
    assert len(times_s) == 7 * 3600
    assert all(0 <= time_s - number / 7 < 1 / 30 for number, time_s in enumerate(times_s))


def test_uneven_times_are_sampled_by_time_and_not_by_count() -> None:
    frames = moments(0.0, 0.01, 0.02, 0.03, 0.5, 0.51, 1.0, 4.0, 4.001, 4.2)
    assert picked(FrameSampling(fps=2.0), frames) == [0.0, 0.5, 1.0, 4.0]


def test_slower_video_is_not_repeated() -> None:
    frames = even(5, 20)
    assert list(FrameSampling(fps=60.0).pick(frames)) == frames


def test_part_includes_its_start_and_excludes_its_end() -> None:
    frames = even(10, 50, first_s=100.0)
    assert picked(FrameSampling(start_s=1.0, end_s=2.0), frames) == [100.0 + number / 10 for number in range(10, 20)]
    assert picked(FrameSampling(start_s=4.85), frames) == [104.9]
    assert picked(FrameSampling(start_s=60.0), frames) == []


def test_intervals_of_a_rate_begin_with_the_part() -> None:
    assert picked(FrameSampling(start_s=0.25, fps=1.0), even(10, 40)) == [0.3, 1.3, 2.3, 3.3]


def test_stride_counts_what_the_rate_leaves() -> None:
    assert picked(FrameSampling(stride=4), even(1, 10)) == [0.0, 4.0, 8.0]
    assert picked(FrameSampling(fps=10.0, stride=2), even(30, 31)) == [0.0, 6 / 30, 12 / 30, 18 / 30, 24 / 30, 1.0]


def test_nothing_is_read_after_the_end() -> None:
    read: list[float] = []

    def frames() -> list[Moment]:
        for moment in even(10, 1000):
            read.append(moment.timestamp_s)
            yield moment

    assert len(list(FrameSampling(end_s=1.0).pick(frames()))) == 10
    assert read[-1] == 1.0


def test_frame_is_handed_on_before_the_next_is_read() -> None:
    frames = iter(even(30, 4))
    sampled = FrameSampling(fps=10.0).pick(frames)
    next(sampled)
    assert next(frames).timestamp_s == 1 / 30


def test_problems_within_the_part_pass_and_count_for_nothing() -> None:
    frames = even(10, 40)
    for place in (3, 15, 16, 35):
        frames[place] = Moment(frames[place].timestamp_s, "broken")
    sampled = list(FrameSampling(start_s=1.0, end_s=3.0, fps=5.0, stride=2).pick(frames))
    assert [frame.timestamp_s for frame in sampled if frame.problem] == [1.5, 1.6]
    assert [frame.timestamp_s for frame in sampled if not frame.problem] == [1.0, 1.4, 1.8, 2.2, 2.6]


def slowly(sampling: FrameSampling, frames: list[Moment]) -> list[Moment]:
    """Interval by interval: the first frame that lies in it."""
    part = [frame for frame in frames if sampling.start_s <= frame.timestamp_s - frames[0].timestamp_s + 0.001]
    if sampling.end_s is not None:
        part = [frame for frame in part if frame.timestamp_s - frames[0].timestamp_s + 0.001 < sampling.end_s]
    if sampling.fps is not None and part:
        start_s, taken = frames[0].timestamp_s + sampling.start_s, []
        for interval in range(int((part[-1].timestamp_s - start_s) * sampling.fps) + 2):
            low = start_s + interval / sampling.fps - 0.001
            inside = [frame for frame in part if low <= frame.timestamp_s < low + 1 / sampling.fps]
            taken += inside[:1]
        part = taken
    return part[:: sampling.stride]


@given(
    steps_ms=st.lists(st.integers(2, 900), min_size=1, max_size=40),
    start_ms=st.integers(0, 3000),
    length_ms=st.none() | st.integers(1, 5000),
    fps=st.none() | st.sampled_from([0.5, 1.0, 2.0, 4.0, 8.0]),
    stride=st.integers(1, 3),
)
@settings(deadline=None, max_examples=200)
def test_any_times_are_picked_as_the_slow_rule_says(
    steps_ms: list[int], start_ms: int, length_ms: int | None, fps: float | None, stride: int
) -> None:
    times_ms = [sum(steps_ms[:count]) for count in range(len(steps_ms) + 1)]
    # Beside every boundary, where floats cannot disagree.
    frames = [Moment(time_ms / 1000) for time_ms in times_ms]
    end_s = None if length_ms is None else (start_ms + length_ms + 0.4) / 1000
    sampling = FrameSampling(start_s=(start_ms + 0.4) / 1000, end_s=end_s, fps=fps, stride=stride)
    assert list(sampling.pick(frames)) == slowly(sampling, frames)


@given(fps=st.floats(0.1, 500), stride=st.integers(1, 5), cut=st.floats(0.01, 9))
@settings(deadline=None, max_examples=100)
def test_neighbouring_parts_share_no_frame_and_miss_none(fps: float, stride: int, cut: float) -> None:
    frames = even(fps, 30)
    parts = [*FrameSampling(end_s=cut).pick(frames), *FrameSampling(start_s=cut).pick(frames)]
    assert parts == frames
    assert len(list(FrameSampling(fps=fps).pick(frames))) <= 30


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[
            ("42", 42.0),
            ("42.5", 42.5),
            ("0", 0.0),
            ("90", 90.0),
            ("00:42", 42.0),
            ("1:02:03.5", 3723.5),
            (" 5. ", 5.0),
        ],
        *[("10s", 10.0), ("500ms", 0.5), ("2 min", 120.0), ("1.5h", 5400.0)],
    ],
)
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1:2:3:4", "1:", ":5", "1e3", "nan", "1.5:00", "٣", "1:00s", "s", "5 m"]
)
def test_times_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"Expected a time such as 42\.5, 10s, 00:42 or 1:02:03\.5, but got"):
        parse_time(text)


@pytest.mark.parametrize("text", ["1:60", "0:99.5", "1:60:00", "2:00:61"])
def test_minutes_and_seconds_above_sixty_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match=f"below 60 in a time with colons, but got '{text}'"):
        parse_time(text)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"start_s": -1.0}, "Expected a start from 0 s, but got -1.0 s"),
        ({"start_s": float("nan")}, "Expected a start from 0 s"),
        ({"start_s": 5.0, "end_s": 5.0}, "Expected an end after the start at 5.0 s, but got 5.0 s"),
        ({"end_s": float("nan")}, "Expected an end after the start"),
        ({"fps": 0.0}, "Expected more than 0 frames a second, but got 0.0"),
        ({"fps": float("inf")}, "Expected more than 0 frames a second"),
        ({"stride": 0}, "Expected a stride from 1, which takes every frame, but got 0"),
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        FrameSampling(**wrong)


@pytest.mark.parametrize(
    "sampling",
    [
        FrameSampling(),
        FrameSampling(fps=10.0),
        FrameSampling(fps=100.0),
        FrameSampling(stride=7),
        FrameSampling(start_s=1.0, end_s=3.0),
        FrameSampling(start_s=8.0, fps=3.0, stride=2),
        FrameSampling(start_s=20.0),
        FrameSampling(end_s=100.0),
        FrameSampling(end_s=1.0005),
        FrameSampling(start_s=0.05, end_s=1.0),
        FrameSampling(start_s=0.25, end_s=2.01, fps=4.0),
        FrameSampling(start_s=0.99, end_s=1.3, fps=2.0),
    ],
)
def test_estimate_is_what_even_times_give(sampling: FrameSampling) -> None:
    assert sampling.estimate(Extent(num_frames=300, fps=30.0)) == len(picked(sampling, even(30, 300)))


def test_estimate_is_none_where_nobody_can_know() -> None:
    assert FrameSampling().estimate(Extent(fps=30.0)) is None
    assert FrameSampling(stride=2).estimate(Extent(num_frames=10)) is None
    assert FrameSampling().estimate(Extent(num_frames=10)) == 10
    assert FrameSampling(end_s=2.0).estimate(Extent(fps=30.0)) == 60
