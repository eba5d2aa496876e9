import threading
import time
from collections.abc import Generator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.pipeline.prefetch import Prefetcher, WhenFull


def counting(stop: int, made: list[int] | None = None) -> Generator[int, None, None]:
    for index in range(stop):
        if made is not None:
            made.append(index)
        yield index


@settings(max_examples=30, deadline=None)
@given(count=st.integers(0, 40), capacity=st.integers(1, 5), stages=st.integers(1, 3))
def test_all_items_come_in_order_through_any_number_of_stages(count: int, capacity: int, stages: int) -> None:
    items: Generator[int, None, None] | Prefetcher[int] = counting(count)
    opened = []
    for _ in range(stages):
        items = Prefetcher((item for item in items), capacity)
        opened.append(items)
    assert list(items) == list(range(count))
    for stage in reversed(opened):
        stage.close()


def test_no_more_than_the_capacity_is_made_ahead() -> None:
    made: list[int] = []
    with Prefetcher(counting(100, made), 3) as ahead:
        time.sleep(0.1)
        assert len(made) == 4  # three wait and one is in the maker's hand
        next(ahead)
        time.sleep(0.1)
        assert len(made) == 5


def test_closing_early_closes_the_generator_in_its_own_thread() -> None:
    closed_in: list[str] = []

    def endless() -> Generator[int, None, None]:
        try:
            while True:
                yield 0
        finally:
            closed_in.append(threading.current_thread().name)

    with Prefetcher(endless(), 2) as ahead:
        assert next(ahead) == 0
    assert len(closed_in) == 1
    assert closed_in[0] != threading.current_thread().name


def test_an_error_comes_after_the_items_made_before_it() -> None:
    def failing() -> Generator[int, None, None]:
        yield 1
        yield 2
        raise ValueError("broken")

    ahead = Prefetcher(failing(), 5)
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ValueError, match="broken"):
        next(ahead)
    with pytest.raises(StopIteration):
        next(ahead)
    ahead.close()


def test_the_newest_item_wins_where_asked_and_drops_are_counted() -> None:
    made: list[int] = []
    with Prefetcher(counting(50, made), 2, WhenFull.NEWEST_WINS) as ahead:
        while len(made) < 50:
            time.sleep(0.01)
        time.sleep(0.05)
        assert list(ahead) == [48, 49]
        assert ahead.num_dropped == 48
