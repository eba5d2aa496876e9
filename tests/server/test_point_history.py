"""The history of points stays within its bytes, keeps the whole picture, and follows its frames where they move."""

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longtake.server.point_history import PlacedChunk, PointHistory
from longtake.server.points import ROW, PointChunk
from longtake.types import MovedSpan

EYE = np.eye(4)


def chunk(frame: int, count: int = 100) -> PointChunk:
    rows = np.zeros(count, ROW)
    rows["position"][:, 0] = np.arange(count)
    return PointChunk(frame=frame, time_s=frame / 10, origin=(0.0, 0.0, 0.0), scale=0.1, rows=rows, total=count)


def all_of(history: PointHistory) -> list[PlacedChunk]:
    found, stop = [], history.next_sequence
    while (placed := history.newest_within(0, stop)) is not None:
        found.append(placed)
        stop = placed.sequence
    return found[::-1]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(1, 400), min_size=1, max_size=120), st.integers(2_000, 60_000))
def test_it_is_never_larger_than_it_may_be_and_counts_what_it_has(counts: list[int], most: int) -> None:
    history = PointHistory(most)
    for frame, count in enumerate(counts):
        history.add(chunk(frame, count), EYE)
        assert history.num_bytes <= most
        placed = all_of(history)
        assert history.num_points == sum(len(one.chunk) for one in placed)
        assert [one.sequence for one in placed] == sorted({one.sequence for one in placed})
    assert history.next_sequence == len(counts)


def test_when_it_is_full_all_frames_stay_and_none_is_much_sparser_than_another() -> None:
    history = PointHistory(200_000)
    for frame in range(100):
        history.add(chunk(frame, 1000), EYE)
    placed = all_of(history)
    assert [one.chunk.frame for one in placed] == list(range(100))
    kept = [len(one.chunk) for one in placed[:-20]]
    assert max(kept) <= 2 * min(kept) + 1
    assert all(np.array_equal(one.chunk.rows["position"][:, 0], np.arange(len(one.chunk))) for one in placed)
    assert {one.chunk.total for one in placed} == {1000}


def test_the_newest_below_a_number_is_found_whatever_was_left_out() -> None:
    history = PointHistory()
    for frame in range(5):
        history.add(chunk(frame), EYE)
    found = history.newest_within(1, 3)
    assert found is not None
    assert found.sequence == 2
    assert history.newest_within(5, 9) is None
    history.clear()
    assert history.newest_within(0, 5) is None
    assert (history.next_sequence, history.num_points, history.num_bytes) == (5, 0, 0)


def test_points_move_with_their_frames_scale_included() -> None:
    history = PointHistory()
    for frame in range(4):
        history.add(chunk(frame), EYE)
    now_from_before = torch.diag(torch.tensor([2.0, 2.0, 2.0, 1.0]))
    now_from_before[0, 3] = 5.0
    history.move(3, [MovedSpan(first_frame=1, last_frame=2, now_from_before=now_from_before)])
    placed = all_of(history)
    expected = now_from_before.double().numpy()
    assert [np.array_equal(one.world_from_chunk, expected) for one in placed] == [False, True, True, False]
    assert {one.version for one in placed} == {3}
    assert history.holds(2)
    assert not history.holds(4)
