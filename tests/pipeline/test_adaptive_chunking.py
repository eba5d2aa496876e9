"""Chunks are as small as keeps up where someone waits for them, and else as quick as they get."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import SettingError
from longtake.pipeline.adaptive_chunking import SIZES, Chunks, keeping_up, load

HALVES = [place / 2 for place in range(8)]


def look(chunks: Chunks, seeing_s: float, times: int = 1) -> None:
    for _ in range(times):
        chunks.seen(HALVES[: chunks.size], seeing_s)


def test_load_is_the_time_to_be_seen_over_the_time_to_come() -> None:
    assert load([3.0, 3.5], 0.5) == 0.5
    assert load([10.0, 10.25, 10.5, 10.75], 2.0) == 2.0


@pytest.mark.parametrize(
    ("loads", "size"),
    [
        ({}, 2),
        ({2: 0.9}, 2),
        ({2: 1.0, 4: 0.5}, 2),
        ({2: 1.1}, 4),
        ({2: 1.1, 4: 0.9, 8: 0.8}, 4),
        ({2: 1.3, 3: 0.5, 4: 1.1}, 8),
        ({2: 1.9, 4: 1.8, 8: 1.7}, 8),
    ],
)
def test_the_smallest_size_that_keeps_up_is_taken_and_the_largest_where_none_does(
    loads: dict[int, float], size: int
) -> None:
    assert keeping_up(loads) == size


@given(seeing_s=st.floats(min_value=0, max_value=9), each_s=st.floats(min_value=0, max_value=2))
@settings(deadline=None, max_examples=100)
def test_a_stream_comes_to_the_smallest_chunk_that_keeps_up(seeing_s: float, each_s: float) -> None:
    """Of a machine that takes so long for any look, and so long more for each frame."""
    chunks = Chunks.auto(is_live=True, has_standing=False)
    for _ in range(20):
        look(chunks, seeing_s + each_s * chunks.size)
    fits = [size for size in SIZES if seeing_s + each_s * size <= size * 0.5]
    assert chunks.size == (fits[0] if fits else SIZES[-1])


def test_one_slow_look_among_quick_ones_changes_nothing() -> None:
    chunks = Chunks.auto(is_live=True, has_standing=True)
    for _ in range(5):
        look(chunks, 60.0)
        look(chunks, 0.1, times=2)
    assert chunks.size == 2


def test_looks_that_become_slow_as_the_memory_fills_are_noticed() -> None:
    chunks = Chunks.auto(is_live=True, has_standing=False)
    look(chunks, 0.1, times=100)
    assert chunks.size == 2
    look(chunks, 1.5, times=2)
    assert chunks.size == 4


def test_chunk_that_a_question_cut_short_says_nothing() -> None:
    chunks = Chunks.auto(is_live=True, has_standing=False)
    for _ in range(10):
        chunks.seen([1.0], 60.0)
    assert chunks.size == 2


def test_frames_dropped_between_chunks_do_not_make_the_source_look_slow() -> None:
    chunks = Chunks.auto(is_live=True, has_standing=False)
    for start_s in (0.0, 100.0, 200.0):
        chunks.seen([start_s, start_s + 0.5], 1.5)
    assert chunks.size == 4


def test_nobody_waits_for_a_file_unless_a_question_is_asked_after_each_look() -> None:
    assert Chunks.auto(is_live=False, has_standing=False).size == SIZES[-1]
    standing = Chunks.auto(is_live=False, has_standing=True)
    look(standing, 60.0, times=10)
    assert standing.size == 2


def test_size_that_was_asked_for_stays() -> None:
    chunks = Chunks(2)
    look(chunks, 60.0, times=10)
    assert chunks.size == 2
    with pytest.raises(SettingError, match="one frame at least"):
        Chunks(0)
