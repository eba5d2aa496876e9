"""Pauses before another try: they grow, end in their order, and none is kept for what is given up."""

from types import SimpleNamespace

import pytest

from longtake.batch.pauses import Pauses


class Clock:
    now_s = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("longtake.batch.pauses.time", SimpleNamespace(monotonic=lambda: clock.now_s))
    monkeypatch.setattr("longtake.batch.pauses._FIRST_S", 2.0)
    return clock


@pytest.mark.parametrize(("num_failures", "seconds"), [(1, 2.0), (2, 8.0), (3, 32.0), (4, 60.0), (99, 60.0)])
def test_each_pause_is_longer_than_the_one_before_up_to_a_minute(
    num_failures: int, seconds: float, clock: Clock
) -> None:
    pauses = Pauses[object]()
    pauses.begin(video := object(), "walk", num_failures)
    clock.now_s += seconds - 0.5
    assert pauses.ended() == []
    assert pauses.left_s() == 0.5
    clock.now_s += 0.5
    assert pauses.ended() == [(video, "walk")]
    assert len(pauses) == 0


def test_pauses_end_in_the_order_of_time(clock: Clock) -> None:
    pauses, first, second = Pauses[object](), object(), object()
    pauses.begin(first, "late", 2)
    pauses.begin(second, "soon", 1)
    assert pauses.left_s() == 2.0
    assert pauses.videos() == [second, first]
    clock.now_s += 20.0
    assert [name for _, name in pauses.ended()] == ["soon", "late"]


@pytest.mark.usefixtures("clock")
def test_a_video_that_is_given_up_has_no_pause() -> None:
    pauses, first, second = Pauses[object](), object(), object()
    pauses.begin(first, "one", 1)
    pauses.begin(second, "two", 1)
    pauses.drop(first)
    assert pauses.videos() == [second]
