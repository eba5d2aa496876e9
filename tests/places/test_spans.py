"""Frames that move as a whole: a span a window, or for so many frames where windows are longer."""

from longtake.places.spans import begins_of
from longtake.places.walk import LoopRule


def test_a_span_begins_with_each_window() -> None:
    assert begins_of([0, 1, 2, 5, 6], [0, 0, 1, 1, 2], LoopRule()) == [0, 2, 4]


def test_a_window_without_an_end_is_divided() -> None:
    assert begins_of(range(10), [0] * 10, LoopRule(longest_node=4)) == [0, 4, 8]
