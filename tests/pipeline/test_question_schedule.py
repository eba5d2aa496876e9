"""Questions come at their moments: after every frame up to them, before any later one, whatever the chunks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import SettingError
from longtake.pipeline.question_schedule import (
    Asked,
    Due,
    Every,
    Once,
    QuestionSchedule,
    When,
    parse_choices,
    parse_every,
    parse_when,
)


@dataclass(frozen=True, slots=True)
class Frame:
    timestamp_s: float
    problem: str | None = None


def frames_at(*times_s: float) -> list[Frame]:
    return [Frame(time_s) for time_s in times_s]


def played(asked: Sequence[Asked], times_s: Sequence[float], chunk: int = 2) -> list[tuple[float, ...] | Due]:
    """What a schedule hands out, frames as their times and questions one by one."""
    handed_out: list[tuple[float, ...] | Due] = []
    for item in QuestionSchedule(asked).through(frames_at(*times_s), lambda: chunk):
        handed_out += item if isinstance(item, tuple) else [tuple(frame.timestamp_s for frame in item)]
    return handed_out


HALVES = [0.0, 0.5, 1.0, 1.5, 2.0]


def test_frames_come_in_chunks_and_the_last_one_may_be_short() -> None:
    assert played([], HALVES) == [(0.0, 0.5), (1.0, 1.5), (2.0,)]


def test_chunks_may_grow_while_the_video_runs() -> None:
    sizes = iter([1, 2, 2, 3, 3, 3])
    items = QuestionSchedule([]).through(frames_at(*HALVES, 2.5), lambda: next(sizes))
    assert [len(item) for item in items if isinstance(item, list)] == [1, 2, 3]


def test_question_whose_first_moment_never_comes_is_named_afterwards() -> None:
    soon, late = Every(text="a", every_s=1.0), Every(text="b", every_s=9.0)
    schedule = QuestionSchedule([soon, late, Once(text="c", at_s=9.0), When(text="d")])
    assert schedule.never_due == (soon, late)
    list(schedule.through(frames_at(*HALVES), lambda: 2))
    assert schedule.never_due == (late,)


def test_question_at_a_moment_cuts_a_chunk_so_that_nothing_later_is_seen() -> None:
    once = Once(text="what?", at_s=1.2)
    assert played([once], HALVES) == [(0.0, 0.5), (1.0,), Due(asked=once, time_s=1.2), (1.5, 2.0)]


def test_frame_at_the_very_moment_of_a_question_is_seen_before_it() -> None:
    once = Once(text="what?", at_s=1.0)
    assert played([once], HALVES)[:3] == [(0.0, 0.5), (1.0,), Due(asked=once, time_s=1.0)]
    last = Once(text="what?", at_s=2.0)
    assert played([last], HALVES)[-1] == Due(asked=last, time_s=2.0)


def test_question_without_a_moment_comes_at_the_end_and_one_beyond_it_is_late() -> None:
    end, late = Once(text="what?"), Once(text="who?", at_s=9.0)
    assert played([end, late], HALVES)[-2:] == [
        Due(asked=end, time_s=2.0),
        Due(asked=late, time_s=2.0, is_late=True),
    ]


def test_question_from_before_the_first_frame_comes_after_that_frame() -> None:
    once = Once(text="what?", at_s=3.0)
    assert played([once], [10.0, 11.0]) == [(10.0,), Due(asked=once, time_s=10.0), (11.0,)]


def test_without_frames_only_what_is_asked_once_is_asked_about_no_moment() -> None:
    asked = [Once(text="what?"), Every(text="who?", every_s=1.0), When(text="dark?")]
    assert played(asked, []) == [Due(asked=asked[0], time_s=None)]


def test_question_every_so_often_counts_from_the_first_frame_and_ends_with_the_video() -> None:
    every = Every(text="who?", every_s=1.0)
    due = [item for item in played([every], [5.0, 5.5, 6.0, 6.5, 7.0]) if isinstance(item, Due)]
    assert [item.time_s for item in due] == [6.0, 7.0]


def test_pause_of_the_video_is_asked_about_once() -> None:
    every = Every(text="who?", every_s=1.0)
    assert played([every], [0.0, 0.5, 4.25]) == [
        (0.0, 0.5),
        Due(asked=every, time_s=4.0),
        (4.25,),
    ]


def test_questions_of_one_gap_come_in_the_order_of_their_moments_and_then_as_given() -> None:
    asked = [Once(text="b", at_s=0.8), Once(text="c", at_s=0.8), Once(text="a", at_s=0.6)]
    texts = [item.asked.text for item in played(asked, [0.0, 1.0]) if isinstance(item, Due)]
    assert texts == ["a", "b", "c"]


def test_questions_about_the_same_frames_come_together_and_those_that_stand_apart() -> None:
    early, late, end = Once(text="a", at_s=0.6), Once(text="b", at_s=0.8), Once(text="c")
    last, when, other = Every(text="d", every_s=1.5), When(text="dark?"), When(text="bright?")
    items = QuestionSchedule([late, early, end, last, when, other]).through(frames_at(0.0, 1.0, 2.0), lambda: 2)
    together = [[due.asked for due in item] for item in items if isinstance(item, tuple)]
    assert together == [[when, other], [early, late], [when, other], [last], [when, other], [end]]
    items = QuestionSchedule([end, last, Once(text="e", at_s=9.0)]).through(frames_at(0.0, 1.5), lambda: 2)
    assert [len(item) for item in items if isinstance(item, tuple)] == [3]


def test_question_that_waits_for_an_answer_comes_after_each_look() -> None:
    when = When(text="dark?")
    assert played([when], HALVES) == [
        (0.0, 0.5),
        Due(asked=when, time_s=0.5),
        (1.0, 1.5),
        Due(asked=when, time_s=1.5),
        (2.0,),
        Due(asked=when, time_s=2.0),
    ]


def test_answer_becomes_what_is_waited_for_only_when_it_was_another_before() -> None:
    when, other = When(text="dark?"), When(text="bright?", becomes="no")
    schedule = QuestionSchedule([when, other])
    heard = ["yes", "yes", "no", "no", "yes"]
    assert [schedule.became(when, answer) for answer in heard] == [True, False, False, False, True]
    assert [schedule.became(other, answer) for answer in heard] == [False, False, True, False, False]


def test_frames_are_taken_one_by_one() -> None:
    """A camera's next frame is not waited for before those that are there are handed out."""
    taken: list[float] = []

    def camera() -> Iterator[Frame]:
        for frame in frames_at(*HALVES):
            taken.append(frame.timestamp_s)
            yield frame

    next(QuestionSchedule([]).through(camera(), lambda: 2))
    assert taken == [0.0, 0.5]


QUARTERS = st.integers(min_value=0, max_value=80).map(lambda quarter: quarter / 4)
TIMES = st.lists(QUARTERS, min_size=1, max_size=20, unique=True).map(sorted)
ASKED = st.lists(
    st.one_of(
        st.builds(Once, text=st.sampled_from("abc"), at_s=st.none() | QUARTERS),
        st.builds(Every, text=st.sampled_from("abc"), every_s=QUARTERS.filter(bool)),
    ),
    max_size=5,
)


def obvious_moments(asked: Asked, times_s: Sequence[float]) -> list[float]:
    """When a question is asked, found by walking from frame to frame."""
    first_s, last_s = times_s[0], times_s[-1]
    if isinstance(asked, Once):
        return [last_s if asked.at_s is None else min(max(asked.at_s, first_s), last_s)]
    assert isinstance(asked, Every)
    ticks = [first_s + number * asked.every_s for number in range(1, 100)]
    gaps = list(zip(times_s, [*times_s[1:], math.nextafter(last_s, math.inf)], strict=True))
    inside = [[tick for tick in ticks if start <= tick < stop] for start, stop in gaps]
    return [found[-1] for found in inside if found]


@given(asked=ASKED, times_s=TIMES, chunk=st.integers(min_value=1, max_value=5))
@settings(deadline=None, max_examples=200)
def test_any_questions_come_at_their_moments_whatever_the_chunks(
    asked: list[Asked], times_s: list[float], chunk: int
) -> None:
    items = played(asked, times_s, chunk)
    seen: list[float] = []
    found: list[tuple[str, float]] = []
    for item in items:
        if isinstance(item, Due):
            assert item.time_s is not None
            assert seen == [time_s for time_s in times_s if time_s <= item.time_s]
            found.append((repr(item.asked), item.time_s))
        else:
            assert 0 < len(item) <= chunk
            seen.extend(item)
    assert seen == times_s
    expected = [(repr(one), moment_s) for one in asked for moment_s in obvious_moments(one, times_s)]
    assert sorted(found) == sorted(expected)
    assert [time_s for _, time_s in found] == sorted(time_s for _, time_s in found)


@given(every_s=st.floats(min_value=0.01, max_value=3), times_s=TIMES)
@settings(deadline=None, max_examples=100)
def test_any_span_asks_at_most_once_a_gap_and_never_ahead_of_the_frames(every_s: float, times_s: list[float]) -> None:
    seen: list[float] = []
    for item in played([Every(text="a", every_s=every_s)], times_s):
        if isinstance(item, Due):
            assert item.time_s is not None
            following = [time_s for time_s in times_s if time_s > seen[-1]]
            assert not following or item.time_s < following[0]
        else:
            seen.extend(item)


def test_standing_questions_are_read_as_people_write_them() -> None:
    assert parse_every("10s how many are there?") == Every(text="how many are there?", every_s=10.0)
    assert parse_when("is it dark?") == When(text="is it dark?", becomes="yes", choices=("yes", "no"))
    assert parse_when("is it dark?=no") == When(text="is it dark?", becomes="no", choices=("yes", "no"))
    assert parse_when("is a=b?=yes") == When(text="is a=b?")
    assert parse_when("which?=red, green") == When(text="which?", becomes="red", choices=("red", "green"))
    assert parse_choices("yes, no,may be") == ("yes", "no", "may be")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("10s", "words in it"),
        ("10s  ", "words in it"),
        ("soon what?", "a time such as"),
        ("-1s what?", "a time such as"),
        ("0s what?", "more than 0 seconds"),
    ],
)
def test_bad_rhythm_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        parse_every(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "words in it"),
        ("=yes", "words in it"),
        ("which?=red", "other answers to wait for"),
        ("which?=red,red", "all different"),
        ("which?=", "other answers"),
    ],
)
def test_bad_question_to_wait_for_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        parse_when(text)
